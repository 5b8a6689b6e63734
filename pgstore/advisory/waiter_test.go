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

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// listenAsWaiter listens as a waiter does. It returns a function that reports whether a release of
// the key, which no other test uses, was notified.
func listenAsWaiter(t *testing.T, key Key) (notified func(within time.Duration) bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		for {
			note, err := conn.WaitForNotification(ctx)
			if err != nil {
				return false
			}
			if note.Payload == key.String() {
				return true
			}
		}
	}
}

// A release notifies if the key has a waiter, in any process, or has had one a moment before, and
// only then.
func TestNotifyOnlyWithWaiters(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	key := keyIn(t, s, "name")
	notified := listenAsWaiter(t, key)
	release(t, s, grant(t, s, "name", time.Minute))
	grant(t, s, "other name", time.Minute)
	another := queue(t, other, "other name")
	release(t, s, grant(t, s, "name", time.Minute))
	if notified(200 * time.Millisecond) {
		t.Error("a release without waiters notified")
	}
	held := grant(t, s, "name", time.Minute)
	waiter := queue(t, other, "name")
	release(t, s, held)
	if !notified(pgtest.Bound) {
		t.Error("a release with a waiter did not notify")
	}
	grant(t, s, "name", 50*time.Millisecond)
	if !notified(pgtest.Bound) {
		t.Error("the end of a hold that was not renewed did not notify")
	}
	release(t, other, another)
	release(t, other, waiter)
	pgtest.Eventually(t, "end of the marks", func() bool { return marksOf(t, s, "name")+marksOf(t, s, "other name") == 0 })
	release(t, s, grant(t, s, "name", time.Minute))
	if notified(200 * time.Millisecond) {
		t.Error("a release after the end of the wait notified")
	}
}

// take makes attempts until one is granted: the first at once, and one after each notice.
func take(ctx context.Context, t *testing.T, s *engine, name string) olddriver.AcquireRequest {
	req := pgtest.Request(name, time.Minute)
	req.Queue = time.Hour
	asks := asksOf(t, s, req.Owner)
	for {
		res, err := s.Acquire(ctx, req)
		if err != nil || !res.Granted && !res.Queued {
			t.Errorf("Acquire by a waiter: %+v, %v", res, err)
		}
		if err != nil || res.Granted {
			return req
		}
		select {
		case <-asks:
		case <-ctx.Done():
			t.Errorf("no notice came: %v", ctx.Err())
			return req
		}
	}
}

// Waiters that rely on notices alone hand a lock on, however their steps fall.
func TestHandOver(t *testing.T) {
	t.Parallel()
	const clients, rounds = 8, 25
	ctx, cancel := context.WithTimeout(t.Context(), 3*pgtest.Bound)
	defer cancel()
	var group sync.WaitGroup
	var holders atomic.Int32
	for range clients {
		s := open(t, pgtest.Postgres().Addr, keysOf(t))
		s.firstSignalDelay = 0
		group.Go(func() {
			for range rounds {
				req := take(ctx, t, s, "name")
				if ctx.Err() != nil {
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				holders.Add(-1)
				if _, err := s.Release(ctx, olddriver.ReleaseRequest{Name: "name", Owner: req.Owner}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// Waiters notice that another program has unlocked a key without a notification.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	key := keyIn(t, s, "name")
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	foreign := func(function string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "SELECT "+function+"("+key.sqlLiteral()+")"); err != nil {
			t.Fatal(err)
		}
	}
	foreign("pg_advisory_lock")
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
	defer cancel()
	got := make(chan struct{})
	go func() {
		defer close(got)
		take(ctx, t, s, "name")
	}()
	pgtest.Eventually(t, "mark of the waiter", func() bool { return marksOf(t, s, "name") == 1 })
	foreign("pg_advisory_unlock")
	<-got
}

// A waiter that makes another attempt costs one statement, and its mark stays. The mark goes when
// the wait is over: by a grant, a Release, or the end of Queue.
func TestCostOfWaiter(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	s.firstSignalDelay = 0
	statements := func(sess *session) uint64 { _, n := sess.progress(time.Now()); return n }
	warm := grant(t, s, "warm", time.Minute)
	before := statements(s.sessions[0])
	attempt(t, s, pgtest.Request("free", time.Minute))
	if n := statements(s.sessions[0]) - before; n != 1 || s.listener() != nil {
		t.Errorf("a waiter that finds the name free costs %d statements, want 1; it listens: %v", n, s.listener() != nil)
	}
	release(t, s, warm)

	held := grant(t, other, "name", time.Minute)
	req := queue(t, s, "name")
	locks, marks := statements(s.sessions[0]), statements(s.listener().session)
	const more = 5
	for range more {
		if res := attempt(t, s, req); !res.Queued {
			t.Errorf("another attempt: %+v, want it queued", res)
		}
	}
	if n := statements(s.sessions[0]) - locks; n != more {
		t.Errorf("%d attempts cost %d statements", more, n)
	}
	if n := statements(s.listener().session) - marks; n != 0 {
		t.Errorf("%d attempts made %d marks", more, n)
	}
	noMark := func(what string) {
		t.Helper()
		pgtest.Eventually(t, "end of the mark after "+what, func() bool { return marksOf(t, s, "name") == 0 })
	}
	release(t, other, held)
	if !attempt(t, s, req).Granted {
		t.Fatal("a free lock was refused to a waiter")
	}
	noMark("a grant")
	other.firstSignalDelay = 0
	release(t, other, queue(t, other, "name"))
	noMark("a release")
	short := pgtest.Request("name", time.Minute)
	short.Queue = 2 * time.Second // A busy machine takes a while to make the mark.
	if res, err := other.Acquire(t.Context(), short); err != nil || !res.Queued {
		t.Fatalf("Acquire by a waiter: %+v, %v", res, err)
	}
	noMark("the end of Queue")
	if other.mu.Lock(); len(other.waiters) != 0 {
		t.Errorf("%d waiters are left", len(other.waiters))
	}
	other.mu.Unlock()
}

// A wait goes on when the connection that listens is lost, with its mark.
func TestWaiterAfterLoss(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	s.firstSignalDelay = 0
	held := grant(t, other, "name", time.Minute)
	asks := asksOf(t, s, queue(t, s, "name").Owner)
	bystander := grant(t, s, "bystander", time.Minute)
	first := s.listener()
	pgtest.QueryValue[bool](t, s.pool, "SELECT pg_terminate_backend($1)", int32(first.session.pid))
	<-first.ended
	pgtest.Eventually(t, "another connection", func() bool {
		second := s.listener()
		return second != nil && second != first
	})
	if n := marksOf(t, s, "name"); n != 1 {
		t.Errorf("on the new connection there are %d marks, want 1", n)
	}
	notified := listenAsWaiter(t, keyIn(t, s, "name"))
	release(t, other, held)
	if !notified(pgtest.Bound) {
		t.Error("the release did not notify")
	}
	pgtest.Signaled(t, asks)
	if got := renew(t, s, bystander); got != olddriver.Renewed {
		t.Errorf("Renew of a lock beside it is answered %d, want Renewed", got)
	}
}

func keyIn(t *testing.T, s *engine, name string) Key {
	t.Helper()
	key, err := s.keys(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Those who wait in a store are shown as waiting for the key, and Close leaves
// neither marks nor connections.
func TestWaitersAreShown(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	grant(t, s, "name", time.Minute)
	req := queue(t, other, "name")
	key := keyIn(t, s, "name")
	listens := other.listener()
	pid := int32(listens.session.pid)
	var found []string
	for lock, err := range s.Locks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if lock.Key == key {
			found = append(found, fmt.Sprint(lock.PID == pid, lock.Granted, lock.Shared, lock.BlockedBy))
		}
	}
	if want := fmt.Sprint([]string{"false true false []", fmt.Sprint("true false false ", sessionsOf(s))}); fmt.Sprint(found) != want {
		t.Errorf("the lock is shown as %v, want %v", found, want)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-listens.ended:
	default:
		t.Error("Close has not waited for the end of the connection that listens")
	}
	if n := pgtest.QueryValue[int](t, s.pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid); n+marksOf(t, s, "name") != 0 {
		t.Error("after Close the connection that listens is still there, or its mark")
	}
	if _, err := other.Acquire(t.Context(), req); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire after Close: %v, want ErrClosed", err)
	}
}

// A release checks for waiters after it has unlocked, not before: a waiter in between is refused
// the lock, and is notified.
func TestWaiterCheckAfterUnlock(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	waiter := open(t, server.Addr, keysOf(t))
	waiter.firstSignalDelay = 0
	gate := keyIn(t, waiter, "gate")
	pgtest.Execute(t, server.URL("postgres"), "CREATE SCHEMA IF NOT EXISTS slow")
	pgtest.Execute(t, server.URL("postgres"), `CREATE OR REPLACE FUNCTION slow.pg_advisory_unlock(key bigint) RETURNS boolean
		LANGUAGE plpgsql SET lock_timeout = 0 AS $$
		BEGIN
			PERFORM pg_catalog.pg_advisory_xact_lock(`+gate.sqlLiteral()+`);
			RETURN pg_catalog.pg_advisory_unlock(key);
		END $$`)
	slow := newEngine(pgtest.OpenPool(t, serverURL(server.Addr)), keysOf(t))
	slow.statements["holdfast_unlock"] = strings.Replace(slow.statements["holdfast_unlock"], "pg_catalog.pg_advisory_unlock", "slow.pg_advisory_unlock", 1)
	t.Cleanup(func() { _ = slow.Close() })
	conn, err := slow.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock("+gate.sqlLiteral()+")"); err != nil {
		t.Fatal(err)
	}
	req := grant(t, slow, "name", time.Minute)
	released := make(chan bool, 1)
	go func() { released <- release(t, slow, req) }()
	pgtest.Eventually(t, "release under way", func() bool {
		for lock, err := range waiter.Locks(t.Context()) {
			if err == nil && lock.Key == gate && !lock.Granted {
				return true
			}
		}
		return false
	})
	asks := asksOf(t, waiter, queue(t, waiter, "name").Owner)
	if _, err := conn.Exec(t.Context(), "SELECT pg_catalog.pg_advisory_unlock("+gate.sqlLiteral()+")"); err != nil {
		t.Fatal(err)
	}
	pgtest.Signaled(t, asks)
	if !<-released {
		t.Error("the Release reports no hold")
	}
}
