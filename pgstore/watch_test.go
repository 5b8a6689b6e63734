//go:build unix

package pgstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// eavesdrop listens as a waiter does, and returns a function that says whether a
// notification came of which nobody else knows.
func eavesdrop(t *testing.T, s *Store) (heard func(within time.Duration) bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "LISTEN "+s.options.channel()); err != nil {
		t.Fatal(err)
	}
	return func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		return err == nil
	}
}

// A release notifies if the name has a waiter, in any process, and only then.
func TestNotifyOnlyWithWaiters(t *testing.T) {
	t.Parallel()
	s := open(t)
	heard := eavesdrop(t, s)
	release(t, s, grant(t, s, "name", time.Minute))
	other := openIn(t, s.options.Schema)
	if _, err := other.Watch(t.Context(), "other name"); err != nil {
		t.Fatal(err)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	if heard(200 * time.Millisecond) {
		t.Error("a release that nobody waits for was told")
	}
	if _, err := other.Watch(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	release(t, s, grant(t, s, "name", time.Minute))
	if !heard(pgtest.Bound) {
		t.Error("a release that somebody waits for was not told")
	}
	// The mark of one who waits no longer runs out.
	change(t, s, "UPDATE @table@ SET awaited_until = now()")
	release(t, s, grant(t, s, "name", time.Minute))
	if heard(200 * time.Millisecond) {
		t.Error("a release that nobody waits for any more was told")
	}
}

// Watching a name that is watched already does not write again.
func TestMarkIsWrittenOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	grant(t, s, "name", time.Minute)
	version := func() (v string) {
		query(t, s, "SELECT xmin::text FROM @table@ WHERE lock_name = 'name'", nil, &v)
		return v
	}
	if _, err := s.Watch(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	before := version()
	if _, err := openIn(t, s.options.Schema).Watch(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	if version() != before {
		t.Error("a second watch has written its mark, though the first one's is good for a while")
	}
}

// Repeated waits for a name send one statement for its mark in a while, and another
// one on a new connection.
func TestMarkTakesOneStatement(t *testing.T) {
	t.Parallel()
	s, sent := traced(t, &Options{})
	watch := func(what string, want int64) {
		t.Helper()
		before := sent.Load()
		if _, err := s.Watch(t.Context(), "name"); err != nil {
			t.Fatal(err)
		}
		if n := sent.Load() - before; n != want {
			t.Errorf("%s was %d statements, want %d", what, n, want)
		}
	}
	watch("the first watch", 3) // LISTEN, the marks of all that is watched, and that of the name
	watch("another", 0)
	listens := s.watcher.Listener().(*tableListener)
	listens.mu.Lock()
	listens.markedAt["name"] = time.Now().Add(-markFreshTime)
	listens.mu.Unlock()
	watch("another after a while", 1)
}

// The marks of those who go on waiting are made anew.
func TestMarksAreMadeAnew(t *testing.T) {
	t.Parallel()
	s := open(t)
	signals, err := s.Watch(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	change(t, s, "UPDATE @table@ SET awaited_until = NULL")
	second, err := s.dialListener(t.Context()) // which marks what is watched
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	release(t, s, grant(t, s, "name", time.Minute))
	select {
	case <-signals:
	case <-time.After(pgtest.Bound):
		t.Error("the release was not told")
	}
}

// Through a pooler nobody can listen, and that is said; waiters then try at
// intervals.
func TestWatchThroughPooler(t *testing.T) {
	t.Parallel()
	opts := &Options{Schema: newSchema(t)}
	for what, s := range map[string]*Store{
		"pgx":          New(pgtest.OpenPool(t, pgtest.PgBouncer().URL("postgres")), opts),
		"database/sql": NewDB(pgtest.OpenSQL(t, pgtest.PgBouncer().URL("postgres")), opts),
	} {
		t.Run(what, func(t *testing.T) {
			defer s.Close()
			for range 2 {
				if _, err := s.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrUnsupported) {
					t.Errorf("Watch through a pooler: %v, want ErrUnsupported", err)
				}
			}
			locks := holdfast.New(s, nil)
			defer locks.Close()
			lock, err := locks.Acquire(t.Context(), "name "+what, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				second, err := locks.Acquire(t.Context(), "name "+what, nil)
				if err == nil {
					err = second.Release()
				}
				got <- err
			}()
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Errorf("a waiter behind a pooler: %v", err)
			}
		})
	}
}

// Waiters of many clients on one name, who try by themselves in the end only, all
// get it as often as they want.
func TestHandOver(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	const clients, rounds = 8, 20
	var wg sync.WaitGroup
	last := int64(0) // protected by the lock
	for range clients {
		locks := holdfast.New(openIn(t, schema, "pool_max_conns=2"), &holdfast.Config{Backoff: holdfast.Backoff{Watched: pgtest.Bound}})
		wg.Go(func() {
			defer locks.Close()
			for range rounds {
				lock, err := locks.Acquire(t.Context(), "name", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if lock.Token() <= last {
					t.Errorf("the token %d after %d", lock.Token(), last)
				}
				last = lock.Token()
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
