//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// overhear listens as a waiter does, and returns a function that reports whether
// the release of a key was told of which nobody else knows.
func overhear(t *testing.T, key Key) (heard func(within time.Duration) bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), shared.postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "LISTEN "+advisoryChannel); err != nil {
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

// Where nobody waits nothing is said; where somebody does, in whichever process,
// it is, and not for long after he has gone.
func TestAdvisoryTellsTheAwaited(t *testing.T) {
	t.Parallel()
	server := shared.postgres()
	s, other := openAdvisory(t, server.Addr, keysOf(t)), openAdvisory(t, server.Addr, keysOf(t))
	key := keyIn(t, s, "name")
	heard := overhear(t, key)
	advisoryRelease(t, s, advisoryGrant(t, s, "name", time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := other.Watch(ctx, "other name"); err != nil {
		t.Fatal(err)
	}
	advisoryRelease(t, s, advisoryGrant(t, s, "name", time.Minute))
	if heard(200 * time.Millisecond) {
		t.Error("a release that nobody waits for was told")
	}
	if _, err := other.Watch(ctx, "name"); err != nil {
		t.Fatal(err)
	}
	advisoryRelease(t, s, advisoryGrant(t, s, "name", time.Minute))
	if !heard(bound) {
		t.Error("a release that somebody waits for was not told")
	}
	advisoryGrant(t, s, "name", 50*time.Millisecond)
	if !heard(bound) {
		t.Error("the end of a hold that was not renewed was not told")
	}
	cancel()
	eventually(t, "end of the marks", func() bool { return marksOf(t, s, "name")+marksOf(t, s, "other name") == 0 })
	advisoryRelease(t, s, advisoryGrant(t, s, "name", time.Minute))
	if heard(200 * time.Millisecond) {
		t.Error("a release that nobody waits for any more was told")
	}
}

// Clients that rely on wake-ups alone hand a lock on, however their steps fall.
func TestAdvisoryHandOver(t *testing.T) {
	t.Parallel()
	const clients, rounds = 8, 25
	ctx, cancel := context.WithTimeout(t.Context(), 3*bound)
	defer cancel()
	var group sync.WaitGroup
	var holders atomic.Int32
	for range clients {
		s := openAdvisory(t, shared.postgres().Addr, keysOf(t))
		s.firstLook = 0
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

// A program that unlocks a key and tells nobody does not leave waiters behind.
func TestAdvisoryForeignHolder(t *testing.T) {
	t.Parallel()
	s := openAdvisory(t, shared.postgres().Addr, keysOf(t))
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
		if _, err := conn.Exec(t.Context(), "SELECT "+function+"("+key.literal()+")"); err != nil {
			t.Fatal(err)
		}
	}
	foreign("pg_advisory_lock")
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(ctx, "name", nil)
		got <- err
	}()
	eventually(t, "mark of the waiter", func() bool { return marksOf(t, s, "name") == 1 })
	foreign("pg_advisory_unlock")
	if err := <-got; err != nil {
		t.Errorf("a lock that another program has unlocked: %v", err)
	}
}

// A watch goes on when the connection that listens is lost, with its mark.
func TestAdvisoryWatchAfterLoss(t *testing.T) {
	t.Parallel()
	server := shared.postgres()
	s, other := openAdvisory(t, server.Addr, keysOf(t)), openAdvisory(t, server.Addr, keysOf(t))
	s.firstLook = 0
	signals, err := s.Watch(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	bystander := advisoryGrant(t, s, "bystander", time.Minute)
	first := s.watcher.link.ear.(*advisoryEar)
	psql[bool](t, s.pool, "SELECT pg_terminate_backend($1)", int32(first.on.pid))
	<-first.over
	eventually(t, "another connection", func() bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		second := s.watcher.ear()
		return second != nil && second != ear(first)
	})
	if n := marksOf(t, s, "name"); n != 1 {
		t.Errorf("on the new connection there are %d marks, want 1", n)
	}
	heard := overhear(t, keyIn(t, s, "name"))
	advisoryRelease(t, other, advisoryGrant(t, other, "name", time.Minute))
	if !heard(bound) {
		t.Error("the release was not told")
	}
	signalled(t, signals)
	if got := advisoryRenew(t, s, bystander); got != driver.Renewed {
		t.Errorf("Renew of a lock beside it is answered %d, want Renewed", got)
	}
}

// signalled waits for a signal.
func signalled(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	select {
	case <-signals:
	case <-time.After(bound):
		t.Fatal("no signal came")
	}
}

func keyIn(t *testing.T, s *AdvisoryStore, name string) Key {
	t.Helper()
	key, err := s.keys(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Those who wait in a store are shown as waiting for the key, and Close leaves
// neither marks nor connections.
func TestAdvisoryWaitersAreShown(t *testing.T) {
	t.Parallel()
	server := shared.postgres()
	s, other := openAdvisory(t, server.Addr, keysOf(t)), openAdvisory(t, server.Addr, keysOf(t))
	advisoryGrant(t, s, "name", time.Minute)
	if _, err := other.Watch(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	key := keyIn(t, s, "name")
	listens := other.watcher.link.ear.(*advisoryEar)
	pid := int32(listens.on.pid)
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
	case <-listens.over:
	default:
		t.Error("Close has not waited for the end of the connection that listens")
	}
	if n := psql[int](t, s.pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid); n+marksOf(t, s, "name") != 0 {
		t.Error("after Close the connection that listens is still there, or its mark")
	}
	if _, err := other.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Watch after Close: %v, want ErrClosed", err)
	}
}

func TestAdvisoryNoListen(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	opts.NoListen = true
	s := openAdvisory(t, shared.postgres().Addr, opts)
	if _, err := s.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrUnsupported) || s.Guarantees().Push {
		t.Errorf("Watch with NoListen: %v, want ErrUnsupported; Push is %v", err, s.Guarantees().Push)
	}
}

// Whoever releases looks for waiters after he has unlocked, and not before: who
// comes in between is refused the lock, and is told.
func TestAdvisoryLooksAfterItUnlocks(t *testing.T) {
	t.Parallel()
	server := shared.postgres()
	waiter := openAdvisory(t, server.Addr, keysOf(t))
	waiter.firstLook = 0
	gate := keyIn(t, waiter, "gate")
	execute(t, server.URL("postgres"), "CREATE SCHEMA IF NOT EXISTS slow")
	execute(t, server.URL("postgres"), `CREATE OR REPLACE FUNCTION slow.pg_advisory_unlock(key bigint) RETURNS boolean
		LANGUAGE plpgsql SET lock_timeout = 0 AS $$
		BEGIN
			PERFORM pg_catalog.pg_advisory_xact_lock(`+gate.literal()+`);
			RETURN pg_catalog.pg_advisory_unlock(key);
		END $$`)
	slow := NewAdvisory(openPoolAt(t, advisoryURL(server.Addr), "search_path=slow,pg_catalog"), keysOf(t))
	t.Cleanup(func() { _ = slow.Close() })
	conn, err := slow.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock("+gate.literal()+")"); err != nil {
		t.Fatal(err)
	}
	req := advisoryGrant(t, slow, "name", time.Minute)
	released := make(chan bool, 1)
	go func() { released <- advisoryRelease(t, slow, req) }()
	eventually(t, "release under way", func() bool {
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
	advisoryRefused(t, waiter, "name")
	if _, err := conn.Exec(t.Context(), "SELECT pg_catalog.pg_advisory_unlock("+gate.literal()+")"); err != nil {
		t.Fatal(err)
	}
	signalled(t, signals)
	if !<-released {
		t.Error("the Release reports no hold")
	}
}
