//go:build unix

package advisory

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// sharedRequest is a request of a new owner for a shared hold.
func sharedRequest(name string) olddriver.AcquireRequest {
	req := pgtest.Request(name, time.Minute)
	req.Limit = olddriver.Shared
	return req
}

// grantShared takes a shared hold, which must be granted.
func grantShared(t *testing.T, s *engine, name string) olddriver.AcquireRequest {
	t.Helper()
	req := sharedRequest(name)
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
		t.Fatalf("Acquire of a shared hold of %q: %+v, %v, want it granted", name, res, err)
	}
	return req
}

// refusedShared checks that a shared hold is not to be had.
func refusedShared(t *testing.T, s *engine, name string) {
	t.Helper()
	if res, err := s.Acquire(t.Context(), sharedRequest(name)); err != nil || res.Granted {
		t.Fatalf("Acquire of a shared hold of %q: %+v, %v, want it refused", name, res, err)
	}
}

// A strangerSession is a session of another program.
type strangerSession struct {
	t    *testing.T
	conn *pgx.Conn
	key  Key
}

func newStranger(t *testing.T, key Key) *strangerSession {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["application_name"] = "stranger"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &strangerSession{t, conn, key}
}

// call calls a function with the key, and returns its result, false for none.
func (f *strangerSession) call(function string) (result bool) {
	f.t.Helper()
	query := fmt.Sprintf("SELECT %s(%s)::text = 'true'", function, f.key.sqlLiteral())
	if err := f.conn.QueryRow(f.t.Context(), query).Scan(&result); err != nil {
		f.t.Fatal(err)
	}
	return result
}

// Shared holds are shared locks of the same key: programs that lock it natively take part, in both
// modes, also beside several stores with one pool.
func TestSharedBesideStranger(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"))
	opts := map[string]*Options{
		"bigint": keysOf(t),
		"pair":   {Keys: func(name string) (Key, error) { return Key2x32(-9, int32(len(t.Name()+name))), nil }},
	}
	for what, opts := range opts {
		s, other := newEngine(pool, opts), newEngine(pool, opts)
		t.Cleanup(func() { _ = s.Close(); _ = other.Close() })
		stranger := newStranger(t, keyIn(t, s, "name"))
		stranger.call("pg_advisory_lock")
		refusedShared(t, s, "name")
		stranger.call("pg_advisory_unlock")
		if !stranger.call("pg_try_advisory_lock_shared") {
			t.Fatalf("%s: a free key is refused to a stranger", what)
		}
		first, second, third := grantShared(t, s, "name"), grantShared(t, s, "name"), grantShared(t, other, "name")
		refused(t, s, "name")
		refused(t, other, "name")
		rec, found, err := other.Lookup(t.Context(), "name")
		var shown []string
		for _, rec := range append([]olddriver.Record{rec}, rec.Others...) {
			shown = append(shown, fmt.Sprint(strings.Fields(rec.Holder)[0], rec.Limit))
		}
		if err != nil || !found || len(shown) != 3 || rec.Holder != third.Holder || !strings.Contains(fmt.Sprint(shown), "stranger-1") {
			t.Errorf("%s: the holders are shown as %q, %v, %v", what, shown, found, err)
		}
		if rec, _, _ := s.Lookup(t.Context(), "name"); len(rec.Others) != 3 || rec.Remaining <= 0 || rec.Others[0].Remaining <= 0 {
			t.Errorf("%s: the store shows its own holds as %+v", what, rec)
		}
		stranger.call("pg_advisory_unlock_shared")
		for _, hold := range []struct {
			s   *engine
			req olddriver.AcquireRequest
		}{{s, first}, {other, third}, {s, second}} {
			if stranger.call("pg_try_advisory_lock") {
				t.Fatalf("%s: a stranger gets a key beside shared holds", what)
			}
			if renew(t, hold.s, hold.req) != olddriver.Renewed || !release(t, hold.s, hold.req) || release(t, hold.s, hold.req) {
				t.Errorf("%s: a shared hold does not end by its one Release", what)
			}
		}
		if !stranger.call("pg_try_advisory_lock") {
			t.Errorf("%s: the key is not free after the last shared hold", what)
		}
	}
}

// A stranger that waits in the server is not overtaken by readers of a session without the key.
func TestStrangerWaits(t *testing.T) {
	t.Parallel()
	s, other := open(t, pgtest.Postgres().Addr, keysOf(t)), open(t, pgtest.Postgres().Addr, keysOf(t))
	stranger := newStranger(t, keyIn(t, s, "name"))
	held := grantShared(t, s, "name")
	locked := make(chan error, 1)
	go func() {
		_, err := stranger.conn.Exec(t.Context(), "SELECT pg_advisory_lock("+stranger.key.sqlLiteral()+")")
		locked <- err
	}()
	pgtest.Eventually(t, "native waiter", func() bool {
		for lock, err := range s.Locks(t.Context()) {
			if err == nil && lock.Key == stranger.key && !lock.Granted {
				return true
			}
		}
		return false
	})
	refusedShared(t, other, "name")
	release(t, s, held)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	refusedShared(t, s, "name")
}

// A writer that waits keeps readers out until its connection ends.
func TestGateOfDeadWriter(t *testing.T) {
	t.Parallel()
	var ways ways
	s, writer := open(t, pgtest.Postgres().Addr, keysOf(t)), ways.open(t, pgtest.Postgres().Addr, keysOf(t))
	grantShared(t, s, "name")
	req := pgtest.Request("name", time.Minute)
	if res := attempt(t, writer, req); !res.Queued || res.Held.Limit != olddriver.Shared {
		t.Fatalf("Acquire by a writer behind a reader: %+v, want it queued", res)
	}
	refusedShared(t, s, "name")
	for lock, err := range s.Locks(t.Context()) {
		if key := keyIn(t, s, "name"); err != nil || lock.Key == key.gateKey() || lock.Key == key.waiterKey() {
			t.Errorf("Locks shows %+v, %v, want neither mark nor gate", lock, err)
		}
	}
	ways.through(writer).Reset()
	pgtest.Eventually(t, "open gate", func() bool {
		res, err := s.Acquire(t.Context(), sharedRequest("name"))
		return err == nil && res.Granted
	})
}

// The gate passes from a writer to the next while the first has the lock, so that no reader gets in
// between.
func TestGateIsTakenOver(t *testing.T) {
	t.Parallel()
	addr := pgtest.Postgres().Addr
	s, writer, next := open(t, addr, keysOf(t)), open(t, addr, keysOf(t)), open(t, addr, keysOf(t))
	next.firstSignalDelay = 0
	reader := grantShared(t, s, "name")
	first, second := queue(t, writer, "name"), queue(t, next, "name")
	asks := asksOf(t, next, second.Owner)
	release(t, s, reader)
	pgtest.Signaled(t, asks)
	if res := attempt(t, writer, first); !res.Granted {
		t.Fatalf("a free lock was refused to a writer: %+v", res)
	}
	for !next.hasGate(second) {
		pgtest.Signaled(t, asks) // The gate was opened.
		if res := attempt(t, next, second); res.Granted {
			t.Fatal("two writers hold the lock")
		}
	}
	release(t, writer, first)
	refusedShared(t, s, "name")
	if res := attempt(t, next, second); !res.Granted {
		t.Fatalf("a free lock was refused to the other writer: %+v", res)
	}
	release(t, next, second)
	grantShared(t, s, "name")
}

func (s *engine) hasGate(req olddriver.AcquireRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.keys(req.Name)
	w := s.waiters[key][ownedName{req.Name, req.Owner}]
	return err == nil && w != nil && w.gate != nil
}

// A shared attempt that gets no token takes nothing from other shared holds, and leaves nothing.
// One that fails otherwise may have the key: its session ends, and the holds of it are lost.
func TestFailedSharedAttempt(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	opts.TokenSequence = "holdfast_failing_shared"
	s, other := open(t, server.Addr, opts), open(t, server.Addr, keysOf(t))
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	setToken := func(last string) {
		pgtest.Execute(t, server.URL("postgres"), "SELECT setval('holdfast_failing_shared', "+last+")")
	}
	setToken("1") // An earlier run may have failed.
	s.statements["holdfast_try_shared"] = "SELECT (" + s.statements["holdfast_try_shared"] +
		") + 0 / (SELECT (last_value <> 7)::int FROM holdfast_failing_shared)"
	fail := func() {
		t.Helper()
		if res, err := s.Acquire(t.Context(), sharedRequest("name")); res.Granted || !driver.IsNotApplied(err) {
			t.Errorf("Acquire that fails gives %+v, %v, want an error", res, err)
		}
	}
	first, second := grantShared(t, s, "name"), grantShared(t, s, "name")
	setToken("9007199254740991") // No token is left.
	fail()
	fail()
	if !release(t, s, first) {
		t.Error("a hold has ended")
	}
	refused(t, other, "name")
	if renew(t, s, second) != olddriver.Renewed || !release(t, s, second) {
		t.Error("the last hold has ended")
	}
	fail() // alone
	release(t, other, grant(t, other, "name", time.Minute))

	setToken("1")
	lost := grantShared(t, s, "name")
	setToken("7")
	fail()
	pgtest.Eventually(t, "loss", func() bool { return renew(t, s, lost) == olddriver.RenewLost })
	takes(t, other, "name")
}

// Shared locks of transactions tolerate each other and shared holds, and no others.
func TestLockSharedTx(t *testing.T) {
	t.Parallel()
	url := pgtest.Postgres().URL("postgres")
	s, name, shared := open(t, pgtest.Postgres().Addr, nil), t.Name(), &TxOptions{Shared: true}
	first, err := pgtest.OpenPool(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := pgtest.OpenSQL(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := LockTx(t.Context(), first, name, shared); err != nil {
		t.Fatal(err)
	}
	if err := LockSQLTx(t.Context(), second, name, shared); err != nil {
		t.Fatal(err)
	}
	refused(t, s, name)
	release(t, s, grantShared(t, s, name))
	if locked, err := TryLockSQLTx(t.Context(), second, name, nil); err != nil || locked {
		t.Errorf("TryLockSQLTx beside a shared lock gives %v, %v", locked, err)
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Rollback(); err != nil {
		t.Fatal(err)
	}
	held := grant(t, s, name, time.Minute)
	first, err = s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback(context.Background())
	if locked, err := TryLockTx(t.Context(), first, name, shared); err != nil || locked {
		t.Errorf("TryLockTx of a shared lock beside an exclusive hold gives %v, %v", locked, err)
	}
	release(t, s, held)
	if locked, err := TryLockTx(t.Context(), first, name, shared); err != nil || !locked {
		t.Errorf("TryLockTx of a free shared lock gives %v, %v", locked, err)
	}
}
