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

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
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
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := other.Watch(ctx, "other name"); err != nil {
		t.Fatal(err)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	if notified(200 * time.Millisecond) {
		t.Error("a release without waiters notified")
	}
	if _, err := other.Watch(ctx, "name"); err != nil {
		t.Fatal(err)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	if !notified(pgtest.Bound) {
		t.Error("a release with a waiter did not notify")
	}
	grant(t, s, "name", 50*time.Millisecond)
	if !notified(pgtest.Bound) {
		t.Error("the end of a hold that was not renewed did not notify")
	}
	cancel()
	pgtest.Eventually(t, "end of the marks", func() bool { return marksOf(t, s, "name")+marksOf(t, s, "other name") == 0 })
	release(t, s, grant(t, s, "name", time.Minute))
	if notified(200 * time.Millisecond) {
		t.Error("a release after the end of the wait notified")
	}
}

// Clients that rely on wake-ups alone hand a lock on, however their steps fall.
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
		locks := holdfast.New(s, &holdfast.Config{Backoff: holdfast.Backoff{Watched: time.Hour}})
		group.Go(func() {
			defer locks.Close()
			for range rounds {
				lock, err := locks.Acquire(ctx, "name", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				holders.Add(-1)
				if err := lock.Release(); err != nil {
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
	locks := holdfast.New(s, &holdfast.Config{Backoff: holdfast.Backoff{Watched: time.Hour}})
	defer locks.Close()
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
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(ctx, "name", nil)
		got <- err
	}()
	pgtest.Eventually(t, "mark of the waiter", func() bool { return marksOf(t, s, "name") == 1 })
	foreign("pg_advisory_unlock")
	if err := <-got; err != nil {
		t.Errorf("a lock that another program has unlocked: %v", err)
	}
}

// A watch goes on when the connection that listens is lost, with its mark.
func TestWatchAfterLoss(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	s.firstSignalDelay = 0
	signals, err := s.Watch(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	bystander := grant(t, s, "bystander", time.Minute)
	first := s.watcher.Listener().(*markListener)
	pgtest.QueryValue[bool](t, s.pool, "SELECT pg_terminate_backend($1)", int32(first.session.pid))
	<-first.ended
	pgtest.Eventually(t, "another connection", func() bool {
		second := listens(s)
		return second != nil && second != first
	})
	if n := marksOf(t, s, "name"); n != 1 {
		t.Errorf("on the new connection there are %d marks, want 1", n)
	}
	notified := listenAsWaiter(t, keyIn(t, s, "name"))
	release(t, other, grant(t, other, "name", time.Minute))
	if !notified(pgtest.Bound) {
		t.Error("the release did not notify")
	}
	pgtest.Signaled(t, signals)
	if got := renew(t, s, bystander); got != driver.Renewed {
		t.Errorf("Renew of a lock beside it is answered %d, want Renewed", got)
	}
}

func keyIn(t *testing.T, s *Store, name string) Key {
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
	if _, err := other.Watch(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	key := keyIn(t, s, "name")
	listens := other.watcher.Listener().(*markListener)
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
	if _, err := other.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Watch after Close: %v, want ErrClosed", err)
	}
}

func TestNoListen(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.NoListen = true
	s := open(t, pgtest.Postgres().Addr, opts)
	if _, err := s.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrUnsupported) || s.Guarantees().Push {
		t.Errorf("Watch with NoListen: %v, want ErrUnsupported; Push is %v", err, s.Guarantees().Push)
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
	slow := New(pgtest.OpenPool(t, serverURL(server.Addr)), keysOf(t))
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
	signals, err := waiter.Watch(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, waiter, "name")
	if _, err := conn.Exec(t.Context(), "SELECT pg_catalog.pg_advisory_unlock("+gate.sqlLiteral()+")"); err != nil {
		t.Fatal(err)
	}
	pgtest.Signaled(t, signals)
	if !<-released {
		t.Error("the Release reports no hold")
	}
}
