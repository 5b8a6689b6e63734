//go:build unix

package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// sessionsOf are the server processes of a store, none of which waits.
func sessionsOf(s *Store) (pids []int32) {
	for _, sess := range s.sessions {
		sess.mu.Lock()
		if sess.conn != nil {
			pids = append(pids, int32(sess.conn.PgConn().PID()))
		}
		sess.mu.Unlock()
	}
	return pids
}

// Every hold of a session that the server ends is lost within a tenth of a second, and said to be,
// long before the next renewal, whether it was granted at once or after a wait.
func TestTerminated(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	quickest := time.Hour // On a busy machine one may take long.
	for range 5 {
		told := map[string]<-chan struct{}{}
		var holds []driver.Request
		for i := range 4 {
			req := grant(t, s, fmt.Sprint("name/", i), time.Hour)
			holds, told[req.Name] = append(holds, req), noticesOf(t, s, req.Owner)
		}
		holder, waiter := grant(t, other, "waited", time.Hour), queue(t, s, "waited")
		holds, told["waited"] = append(holds, waiter), noticesOf(t, s, waiter.Owner)
		release(t, other, holder)
		pgtest.Signaled(t, told["waited"])
		began := time.Now()
		for _, pid := range sessionsOf(s) {
			pgtest.QueryValue[bool](t, other.pool, "SELECT pg_terminate_backend($1)", pid)
		}
		for _, req := range holds {
			pgtest.Signaled(t, told[req.Name])
		}
		quickest = min(quickest, time.Since(began))
		for _, req := range holds {
			if got := stateOf(t, s, req); got != driver.Lost {
				t.Errorf("Renew of a lost lock: %v, want lost", got)
			}
			if release(t, s, req) {
				t.Error("Release of a lost lock reports a hold")
			}
			release(t, other, takes(t, other, req.Name))
		}
	}
	if quickest > time.Second {
		t.Errorf("the quickest loss was notified after %v", quickest)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	time.Sleep(time.Second) // Nobody looks at a session without locks, until it is used.
	endSession(t, s, other)
	grant(t, s, "name", time.Minute) // Its loss costs no attempt.
}

// A client behind a pooler of transactions is refused, and leaves no lock.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	fails(t, open(t, pgtest.PgBouncer().Addr, opts), driver.ErrUnsupported, "a pooler in the path", "Acquire")
	if left := locksOn(t, open(t, pgtest.Postgres().Addr, opts), "name"); len(left) > 0 {
		t.Errorf("after the refusal there is %+v", left)
	}
}

// Behind a pooler of transactions that is not recognized as one, a Store loses its locks as soon as
// another process of the server replies: that has the statements of other clients.
func TestWronglyPooled(t *testing.T) {
	t.Parallel()
	s, other := open(t, pgtest.Postgres().Addr, keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	req := grant(t, s, "name", time.Minute)
	grant(t, other, "other", time.Minute)
	mine, theirs := s.sessions[0], other.sessions[0]
	mine.mu.Lock()
	theirs.mu.Lock()
	mine.conn, theirs.conn = theirs.conn, mine.conn
	theirs.mu.Unlock()
	mine.mu.Unlock()
	if got := stateOf(t, s, req); got != driver.Lost {
		t.Errorf("Renew in another server process: %v, want lost", got)
	}
}

// An attempt is not refused because of a hold whose end the server has carried out before, also if
// its session has not learned of it yet.
func TestLateReplyToARelease(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	s, other := open(t, proxy.Addr(), keysOf(t)), open(t, server.Addr, keysOf(t))
	req := grant(t, s, "name", time.Minute)
	var group sync.WaitGroup
	proxy.Hold(faultproxy.Down)
	group.Go(func() { release(t, s, req) })
	release(t, other, takes(t, other, "name"))
	next := pgtest.Request("name", time.Minute)
	group.Go(func() {
		if res, err := s.Acquire(t.Context(), next); err != nil || !res.Granted {
			t.Errorf("Acquire of the free name: %+v, %v", res, err)
		}
	})
	pgtest.Eventually(t, "entry of the attempt", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.owners[owned{next.Name, next.Owner}] != nil
	})
	proxy.Pass(faultproxy.Down)
	group.Wait()
}

// A lost reply leaves nobody locked out, whatever it was the reply to.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	bound := func(request []byte) bool { return request[0] == 'B' }
	for range 5 {
		proxy := faultproxy.Start(t, server.Addr)
		s, other := open(t, proxy.Addr(), keysOf(t)), open(t, server.Addr, keysOf(t))
		release(t, s, grant(t, s, "first", time.Minute))
		proxy.LoseReply(bound)
		if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); err == nil || res.Granted || driver.IsNotApplied(err) {
			t.Errorf("Acquire without a reply: %+v, %v, want an error that leaves it open", res, err)
		}
		req := takes(t, s, "name")
		proxy.LoseReply(bound)
		if got := stateOf(t, s, req); got != driver.Lost {
			t.Errorf("Renew on a connection that was cut: %v, want lost", got)
		}
		req = takes(t, s, "name")
		proxy.LoseReply(bound)
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: req.Owner}); err == nil || driver.IsNotApplied(err) {
			t.Errorf("Release without a reply: %v, want an error that leaves it open", err)
		}
		release(t, other, takes(t, other, "name"))
		if release(t, s, req) {
			t.Error("the Release sent again reports a hold")
		}
	}
}

// No call of a server that has fallen silent lasts a second longer than its context, whichever
// goroutine sends it. The session is given up in the end, with all its locks, which are free when
// the server learns of that.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, pgtest.Postgres().Addr)
	s := open(t, proxy.Addr(), keysOf(t))
	proxy.Mark(func([]byte) bool { return true })
	req, renewed := grant(t, s, "name", time.Minute), grant(t, s, "renewed", time.Minute)
	lost := noticesOf(t, s, renewed.Owner)
	proxy.HoldMarked(faultproxy.Up)
	var group sync.WaitGroup
	for _, timeout := range []time.Duration{3 * time.Second, 50 * time.Millisecond} {
		for what, req := range map[string]driver.Request{"Acquire": pgtest.Request("free", time.Minute), "Renew": renewed, "Release": req} {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				began := time.Now()
				err := storecheck.Calls(s, req)[what](ctx)
				if took := time.Since(began); err == nil && what != "Renew" || took > timeout+2*time.Second { // It may be lost.
					t.Errorf("%s with a deadline in %v returns after %v: %v, want an error", what, timeout, took, err)
				}
			})
		}
	}
	group.Wait()
	pgtest.Signaled(t, lost)
	proxy.PassMarked(faultproxy.Up)
	takes(t, s, "name")
	if locks := locksOn(t, open(t, pgtest.Postgres().Addr, keysOf(t)), "name"); len(locks) != 1 || locks[0].PID != sessionsOf(s)[0] {
		t.Errorf("the locks are %+v, want that of the new session", locks)
	}
}

// A renewal asks the server, of a place too, also if the session has had a longer TTL, for whose
// sake the server would keep it.
func TestRenewalAsksTheServer(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, pgtest.Postgres().Addr)
	s := open(t, proxy.Addr(), keysOf(t))
	release(t, s, grant(t, s, "long", time.Hour))
	req := grant(t, s, "name", time.Minute)
	for _, req := range []driver.Request{req, queue(t, s, "name")} {
		before := stateOf(t, s, req)
		proxy.Hold(faultproxy.Up)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		got, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		cancel()
		if err == nil || got[0].State != driver.Unknown {
			t.Errorf("Renew of what was %v beside a silent server: %v, %v", before, got, err)
		}
		proxy.Pass(faultproxy.Up)
	}
}

// An attempt at a name that is held, given up and released before it has a reply, frees nothing,
// and does not wait.
func TestReleaseBehindARefusal(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, pgtest.Postgres().Addr)
	s, other := open(t, proxy.Addr(), keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	holder, late := grant(t, s, "name", time.Minute), pgtest.Request("name", time.Minute)
	late.Place = time.Minute
	waiter := queue(t, s, "name") // So the second session is ready.
	pgtest.Eventually(t, "statement that waits", func() bool { return waiterOf(t, other) != 0 })
	release(t, s, waiter)
	proxy.Hold(faultproxy.Down)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if res, err := s.Acquire(ctx, late); err == nil {
		t.Errorf("Acquire of a silent server: %+v, want an error", res)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: late.Name, Owner: late.Owner}); released || err != nil {
			t.Errorf("Release behind a refusal: %v, %v", released, err)
		}
	}()
	pgtest.Eventually(t, "end", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		e := s.owners[owned{late.Name, late.Owner}]
		return e == nil || e.state == ending
	})
	proxy.Pass(faultproxy.Down)
	pgtest.Signaled(t, ended)
	refused(t, other, "name")
	if got := stateOf(t, s, holder); got != driver.Held {
		t.Errorf("the holder is %v, want held", got)
	}
	if pid := waiterOf(t, other); pid != 0 {
		t.Error("what was released waits")
	}
}

// A holder that the server hears nothing of is succeeded a second after its TTL.
func TestHungHolder(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, pgtest.Postgres().Addr)
	s, other := open(t, proxy.Addr(), keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	release(t, s, grant(t, s, "name", time.Millisecond))
	req := grant(t, s, "name", 1500*time.Millisecond)
	proxy.Hold(faultproxy.Up)
	began := time.Now()
	takes(t, other, "name")
	if took := time.Since(began); took < 1500*time.Millisecond || took > pgtest.Bound {
		t.Errorf("the holder was succeeded after %v, want two seconds and a half on an idle machine", took)
	}
	if got := stateOf(t, s, req); got != driver.Lost {
		t.Errorf("the holder is %v, want lost", got)
	}
}

// A grant that is read when the server has ended the session for its silence is none.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	s, other := open(t, proxy.Addr(), keysOf(t)), open(t, server.Addr, keysOf(t))
	holder := grant(t, other, "name", time.Minute)
	waiter := pgtest.Request("name", 100*time.Millisecond)
	waiter.Place = time.Hour
	told := noticesOf(t, s, waiter.Owner)
	if res, err := s.Acquire(t.Context(), waiter); err != nil || !res.Waiting {
		t.Fatalf("Acquire by a waiter: %+v, %v", res, err)
	}
	pgtest.Eventually(t, "statement that waits", func() bool { return waiterOf(t, other) != 0 })
	proxy.Hold(faultproxy.Down)
	release(t, other, holder)
	refused(t, other, "name") // The server has granted it to the waiter.
	takes(t, other, "name")
	proxy.Pass(faultproxy.Down)
	pgtest.Signaled(t, told)
	if got := stateOf(t, s, waiter); got != driver.Lost {
		t.Errorf("the waiter that was granted the key too late is %v, want lost", got)
	}
}

// A wait that is given up while its grant is on the way leaves no lock.
func TestGivenUpAsGranted(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	s, other := open(t, proxy.Addr(), keysOf(t)), open(t, server.Addr, keysOf(t))
	holder := grant(t, other, "name", time.Minute)
	waiter := queue(t, s, "name")
	pgtest.Eventually(t, "statement that waits", func() bool { return waiterOf(t, other) != 0 })
	proxy.Hold(faultproxy.Down)
	release(t, other, holder)
	pgtest.Eventually(t, "grant", func() bool { return waiterOf(t, other) == 0 })
	s.mu.Lock()
	e := s.owners[owned{waiter.Name, waiter.Owner}]
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		release(t, s, waiter)
	}()
	pgtest.Eventually(t, "end", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return e.state == ending
	})
	proxy.Pass(faultproxy.Down)
	pgtest.Signaled(t, ended)
	grant(t, other, "name", time.Minute)
}

// A standby's locks are its own.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t, "fsync=off")
	standby := servers.StartPostgresStandby(t, primary, "standby", "fsync=off")
	s := open(t, standby.Addr, nil)
	fails(t, s, driver.ErrNotApplied, "standby", "Acquire", "Lookup")
	if err := LockTx(t.Context(), pgtest.Begin(t, s.pool), "name", nil); !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("LockTx on a standby gives %v, want an error", err)
	}
}

// A holder at a server that was replaced, whose address has moved to another one, learns so when it
// renews, as all that ask do, and a waiter when it tries anew, after ten seconds.
func TestAddressMoves(t *testing.T) {
	t.Parallel()
	for _, sequence := range []string{"", "tokens"} {
		primary := servers.StartPostgres(t, "fsync=off")
		opts := &Options{TokenSequence: sequence}
		if err := open(t, primary.Addr, opts).Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		standby := servers.StartPostgresStandby(t, primary, "standby", "fsync=off")
		proxy := faultproxy.Start(t, primary.Addr)
		holder, asker, releaser := open(t, proxy.Addr(), opts), open(t, proxy.Addr(), opts), open(t, proxy.Addr(), opts)
		req, other, last := grant(t, holder, "name", time.Minute), grant(t, releaser, "other", time.Minute), grant(t, asker, "last", time.Minute)
		grant(t, open(t, primary.Addr, opts), "left", time.Minute)
		waits := open(t, proxy.Addr(), opts)
		waiter := pgtest.Request("left", time.Minute)
		waiter.Place = time.Minute
		told := noticesOf(t, waits, waiter.Owner)
		if res, err := waits.Acquire(t.Context(), waiter); err != nil || !res.Waiting {
			t.Fatalf("Acquire of a held name: %+v, %v", res, err)
		}
		pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET default_transaction_read_only = on")
		pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
		standby.Promote()
		proxy.SetTarget(standby.Addr)
		takes(t, open(t, proxy.Addr(), opts), "name")
		pgtest.Eventually(t, "refusal of a name that is held there", func() bool {
			_, err := asker.Acquire(t.Context(), pgtest.Request("name", time.Minute))
			return err != nil && strings.Contains(err.Error(), noWrites)
		})
		if _, err := releaser.Release(t.Context(), driver.ReleaseRequest{Name: "other", Owner: other.Owner}); err == nil || !strings.Contains(err.Error(), noWrites) {
			t.Errorf("Release at a server that was replaced: %v", err)
		}
		for s, req := range map[*Store]driver.Request{holder: req, asker: last} {
			if got := stateOf(t, s, req); got != driver.Lost {
				t.Errorf("a hold at a server that was replaced is %v", got)
			}
		}
		grant(t, asker, "free", time.Minute)
		pgtest.Signaled(t, told)
	}
}

// A server without connections refuses, and says when to come again. An owner that cannot wait
// in the server is told to look.
func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=3", "superuser_reserved_connections=0", "max_wal_senders=0")
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	grant(t, s, "name", time.Minute)
	full := pgtest.OpenPool(t, server.URL("postgres"), "pool_max_conns=3")
	for range 2 {
		pgtest.Eventually(t, "connection", func() bool { // That which has found the server ready may be about to end.
			conn, err := full.Acquire(t.Context())
			if err == nil {
				t.Cleanup(conn.Release)
			}
			return err == nil
		})
	}
	var later *driver.RetryError
	if _, err := other.Acquire(t.Context(), pgtest.Request("name", time.Minute)); !errors.As(err, &later) || !driver.IsNotApplied(err) {
		t.Errorf("Acquire without a connection: %v, want a RetryError", err)
	}
	waiter := pgtest.Request("name", time.Minute)
	waiter.Place = time.Minute
	told, began := noticesOf(t, s, waiter.Owner), time.Now()
	if res, err := s.Acquire(t.Context(), waiter); err != nil || !res.Waiting {
		t.Fatalf("Acquire by a waiter: %+v, %v", res, err)
	}
	pgtest.Signaled(t, told)
	if got := stateOf(t, s, waiter); got != driver.Lost {
		t.Errorf("a waiter without a connection is %v, want lost", got)
	}
	if took := time.Since(began); took < shortPause {
		t.Errorf("a waiter without a connection is told so after %v, and would ask for one again at once", took)
	}
}

// Functions of others in the path of the session are not called, also not by their operators and
// types.
func TestHostileSearchPath(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	pgtest.Execute(t, server.URL("postgres"), `CREATE SCHEMA hostile;
		CREATE FUNCTION hostile.pg_try_advisory_lock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
		CREATE FUNCTION hostile.pg_advisory_lock(bigint) RETURNS void LANGUAGE sql AS '';
		CREATE FUNCTION hostile.pg_advisory_unlock(bigint) RETURNS bool LANGUAGE sql AS 'SELECT true';
		CREATE FUNCTION hostile.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
		CREATE SEQUENCE hostile.calls;
		CREATE FUNCTION hostile.called() RETURNS bool LANGUAGE sql AS $$ SELECT pg_catalog.nextval('hostile.calls') > 0 $$;
		CREATE DOMAIN hostile.bool AS boolean CHECK (hostile.called());
		CREATE DOMAIN hostile.text AS text CHECK (hostile.called());
		CREATE FUNCTION hostile.same(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT hostile.called()';
		CREATE OPERATOR hostile.= (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = hostile.same);
		CREATE FUNCTION hostile.less(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT hostile.called()';
		CREATE OPERATOR hostile.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = hostile.less)`)
	t.Cleanup(func() { pgtest.Execute(t, server.URL("postgres"), "DROP SCHEMA hostile CASCADE") })
	opts := keysOf(t)
	opts.TokenSequence = "public.hostile_tokens"
	hurt := New(pgtest.OpenPool(t, server.URL("postgres"), "search_path=hostile,pg_catalog"), opts)
	t.Cleanup(func() { _ = hurt.Close() })
	if err := hurt.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := open(t, server.Addr, opts)
	req := grant(t, other, "name", time.Minute)
	refused(t, hurt, "name")
	waiter := queue(t, hurt, "name")
	told := noticesOf(t, hurt, waiter.Owner)
	release(t, other, req)
	pgtest.Signaled(t, told)
	refused(t, other, "name")
	if !release(t, hurt, waiter) {
		t.Error("Release reports no hold")
	}
	grant(t, other, "name", time.Minute)
	if len(locksOn(t, hurt, "name")) != 1 {
		t.Error("Locks does not show the lock")
	}
	if pgtest.QueryValue[bool](t, other.pool, "SELECT is_called FROM hostile.calls") {
		t.Error("a function of others was called")
	}
}

// A session that waits for long does not hold up vacuum: its snapshot does not get old. A machine
// that stands still for seconds costs the wait: then there is another.
func TestVacuum(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	grant(t, s, "name", time.Minute)
	var waiter driver.Request
	var snapshot, first int64
	pgtest.Eventually(t, "younger snapshot of one wait", func() bool {
		if waiter.Name == "" || stateOf(t, s, waiter) != driver.Waiting {
			waiter, first = queue(t, s, "name"), 0
		}
		snapshot = pgtest.QueryValue[int64](t, s.pool, "SELECT coalesce(max(backend_xmin::text::bigint), 0) FROM pg_stat_activity WHERE pid = $1", waiterOf(t, s))
		if first == 0 {
			first = snapshot
		}
		pgtest.QueryValue[int64](t, s.pool, "SELECT txid_current()")
		return snapshot > first
	})
}

// waiterOf returns the server process that waits for the key of "name", 0 if there is none.
func waiterOf(t *testing.T, s *Store) int32 {
	if locks := locksOn(t, s, "name"); len(locks) > 0 && !locks[len(locks)-1].Granted {
		return locks[len(locks)-1].PID
	}
	return 0
}

// A statement that somebody cancels costs no hold.
func TestCanceledStatement(t *testing.T) {
	t.Parallel()
	s, other := open(t, pgtest.Postgres().Addr, keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	req := grant(t, s, "name", time.Minute)
	pid := sessionsOf(s)[0]
	var renewed atomic.Int32
	var group sync.WaitGroup
	defer group.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 2 {
		group.Go(func() {
			for ttl := time.Minute; ctx.Err() == nil; ttl += 10 * time.Millisecond { // It is to be made known to the server.
				got, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: ttl}})
				if err != nil || got[0].State != driver.Held {
					t.Errorf("the hold is %v, %v", got[0].State, err)
					return
				}
				renewed.Add(1)
			}
		})
	}
	for range 50 {
		before := renewed.Load()
		pgtest.QueryValue[bool](t, other.pool, "SELECT pg_cancel_backend($1)", pid)
		pgtest.Eventually(t, "renewals", func() bool { return t.Failed() || renewed.Load() > before+4 })
	}
}

// A Release of what the server does not have any more reports no hold.
func TestReleaseOfNothing(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	req := grant(t, s, "name", time.Minute)
	s.sessions[0].mu.Lock()
	_, err := s.sessions[0].conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	s.sessions[0].mu.Unlock()
	if err != nil || release(t, s, req) {
		t.Errorf("Release after pg_advisory_unlock_all, %v, reports a hold", err)
	}
}

// A hold whose Release has no answer is not renewed any more.
func TestUnansweredRelease(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.Start(t, pgtest.Postgres().Addr)
	s := open(t, proxy.Addr(), keysOf(t))
	req := grant(t, s, "name", time.Minute)
	proxy.Hold(faultproxy.Down)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err == nil {
		t.Error("Release of a silent server: no error")
	}
	if got := stateOf(t, s, req); got != driver.Lost {
		t.Errorf("after the Release the hold is %v, want lost", got)
	}
	proxy.Pass(faultproxy.Down)
	takes(t, s, "name")
}

// The timeouts that the user has set, and that of a batch, end neither a wait nor a hold.
func TestTimeoutsOfTheUser(t *testing.T) {
	t.Parallel()
	s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"), "statement_timeout=300", "lock_timeout=300", "idle_session_timeout=600"), keysOf(t))
	t.Cleanup(func() { _ = s.Close() })
	holder := grant(t, s, "name", time.Minute)
	waiter := queue(t, s, "name")
	pgtest.Eventually(t, "long wait", func() bool {
		locks := locksOn(t, s, "name")
		return len(locks) == 2 && time.Since(locks[1].Since) > batchTimeout+200*time.Millisecond && !locks[1].Granted
	})
	for req, want := range map[*driver.Request]driver.State{&holder: driver.Held, &waiter: driver.Waiting} {
		if got := stateOf(t, s, *req); got != want {
			t.Errorf("there is %v, want %v", got, want)
		}
	}
}

// What is asked for a hold that has ended does not wait for the next owner of its session.
func TestEndedBesideTheNextWait(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.MaxWaiters = 1
	s := open(t, pgtest.Postgres().Addr, opts)
	holder, waiter := grant(t, s, "name", time.Minute), queue(t, s, "name")
	told := noticesOf(t, s, waiter.Owner)
	release(t, s, holder)
	pgtest.Signaled(t, told)
	again := unlocking(s, waiter)
	release(t, s, waiter)
	grant(t, s, "name", time.Minute)
	queue(t, s, "name")
	pgtest.Eventually(t, "statement that waits", func() bool { return waiterOf(t, s) != 0 })
	ctx, cancel := context.WithTimeout(t.Context(), inlineTime*9/10)
	defer cancel()
	if err := again.entry.session.do(ctx, again); err != nil || again.done {
		t.Errorf("a second unlock: %v, %v", again.done, err)
	}
}

// An attempt that was given up, and is sent as the end of its session is found out, leaves no lock.
func TestGivenUpAsTheSessionEnds(t *testing.T) {
	t.Parallel()
	s, other := open(t, pgtest.Postgres().Addr, keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	release(t, s, grant(t, s, "name", time.Minute))
	s.sessions[0].mu.Lock()
	s.sessions[0].used = time.Time{} // Such a session is looked at before it is used.
	s.sessions[0].mu.Unlock()
	endSession(t, s, other)
	c := attempt(t, s, "name")
	s.mu.Lock()
	c.entry.state = ending
	s.mu.Unlock()
	s.sessions[0].send(t.Context(), []*call{c})
	if _, err := s.end(t.Context(), c.entry.owned); err != nil {
		t.Fatal(err)
	}
	grant(t, other, "name", time.Minute)
}

// endSession has the server end the first session of a store.
func endSession(t *testing.T, s, other *Store) {
	t.Helper()
	pid := sessionsOf(s)[0]
	pgtest.QueryValue[bool](t, other.pool, "SELECT pg_terminate_backend($1)", pid)
	pgtest.Eventually(t, "end of the session", func() bool {
		return pgtest.QueryValue[int64](t, other.pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
}

// An attempt whose entry has ended before it is sent takes nothing: nobody would give it back.
func TestAttemptAfterItsEnd(t *testing.T) {
	t.Parallel()
	s, other := open(t, pgtest.Postgres().Addr, keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	c := attempt(t, s, "name")
	if _, err := s.end(t.Context(), c.entry.owned); err != nil {
		t.Fatal(err)
	}
	if err := s.sessions[0].do(t.Context(), c); err != nil || c.done {
		t.Errorf("the attempt is granted, %v", err)
	}
	grant(t, other, "name", time.Minute)
}
