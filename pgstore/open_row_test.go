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
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// openTransactions are ways to leave the row of a name locked, as clients do whose
// libraries begin transactions by themselves.
var openTransactions = map[string]struct {
	before func(s *engine, t *testing.T, name string)
	leave  string
	takes  bool // the lock, if it is committed
}{
	"row locked":         {(*engine).taken, "SELECT FROM @table@ WHERE lock_name = $1 FOR UPDATE", false},
	"acquired":           {(*engine).taken, "SELECT @acquire_lock@($1::text, 'worker'::text)", true},
	"acquired the first": {(*engine).untouched, "SELECT @acquire_lock@($1::text, 'worker'::text)", true},
	"inserted": {(*engine).untouched, "INSERT INTO @table@ (lock_name, holder_id, acquired_at, expires_at) " +
		"VALUES ($1, 'worker', clock_timestamp(), clock_timestamp() + interval '1 minute')", true},
	"deleted": {(*engine).taken, "DELETE FROM @table@ WHERE lock_name = $1", false},
}

// taken takes and releases a name, so that it has a row.
func (s *engine) taken(t *testing.T, name string) {
	t.Helper()
	release(t, s, grant(t, s, name, time.Minute))
}

func (s *engine) untouched(*testing.T, string) {}

// openDatabase makes a database with a table of locks, in which transactions may
// stay open: elsewhere they would keep the tables of other tests from being
// cleaned.
func openDatabase(t *testing.T, name string) (url string) {
	t.Helper()
	admin := pgtest.Postgres().URL("postgres")
	pgtest.Execute(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	pgtest.Execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { pgtest.Execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	url = pgtest.Postgres().URL(name)
	migrated(t, url, nil)
	return url
}

func openAt(t *testing.T, url string, parameters ...string) *engine {
	t.Helper()
	s := newPoolEngine(pgtest.OpenPool(t, url, parameters...), nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// leaveOpen runs a statement in a transaction that goes on.
func leaveOpen(t *testing.T, s *engine, text string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := s.pool.(pgxPool).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), s.expandSQL(text), args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// While somebody's transaction has the row of a name open, it is not known whether the name is held:
// an attempt ends after a moment, by the store and by the functions, with an error that says that it
// may be made again.
func TestOpenRow(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "open_rows")
	for what, open := range openTransactions {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, fresh := openAt(t, url), openAt(t, url)
			open.before(s, t, what)
			tx := leaveOpen(t, s, open.leave, what)
			s.nameCache.set(what, stateFree, 0)
			for _, other := range []*engine{s, fresh} {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				var later *driver.RetryError
				if res, err := other.Acquire(ctx, pgtest.Request(what, time.Minute)); !errors.As(err, &later) {
					t.Errorf("Acquire: %+v, %v, want a RetryError", res, err)
				}
				cancel()
			}
			err := fresh.execQuery(t.Context(), s.expandSQL("SELECT @acquire_lock@($1::text, 'other'::text)"), what)
			if pgclient.SQLState(err) != lockNotAvailable {
				t.Errorf("acquire_lock: %v, want lock_not_available", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !open.takes {
				grant(t, s, what, time.Minute)
			} else if rec := refuse(t, s, what); rec.Holder != "worker" {
				t.Errorf("when the transaction is committed the lock is shown as %+v", rec)
			}
		})
	}
}

// A row that a transaction keeps locked for as long as a slow disk takes to commit is waited for.
func TestRowOfASlowCommit(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "slow_commits"))
	s.taken(t, "name")
	tx := leaveOpen(t, s, "SELECT FROM @table@ WHERE lock_name = $1 FOR UPDATE", "name")
	var committed sync.WaitGroup
	committed.Go(func() {
		time.Sleep(400 * time.Millisecond) // as long as the disk
		_ = tx.Rollback(context.Background())
	})
	grant(t, s, "name", time.Minute)
	committed.Wait()
}

// A waiter gets the lock soon after the transaction that had its row open has
// ended, and other names are waited for and granted meanwhile.
func TestWaitForOpenRow(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "awaited_rows")
	for what, open := range openTransactions {
		t.Run(what, func(t *testing.T) {
			s, other := openAt(t, url, "pool_max_conns=4"), openAt(t, url, "pool_max_conns=2")
			name, name2 := what, what+", second"
			open.before(s, t, name)
			tx := leaveOpen(t, s, open.leave, name)
			locks := holdfast.New(newStore(other), nil)
			t.Cleanup(func() { _ = locks.Close() })
			granted := make(chan time.Time, 1)
			go func() {
				lock, err := locks.Acquire(t.Context(), name, &holdfast.Options{Wait: pgtest.Bound})
				granted <- time.Now()
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				_ = lock.Release() // The schema is emptied.
			}()
			second := grant(t, s, name2, time.Minute)
			lock := make(chan error, 1)
			go func() {
				lock2, err := locks.Acquire(t.Context(), name2, &holdfast.Options{Wait: pgtest.Bound})
				if err == nil {
					err = lock2.Release()
				}
				lock <- err
			}()
			pgtest.Eventually(t, "place beside a row that is locked", func() bool {
				rec, _, err := s.Lookup(t.Context(), name2)
				return err == nil && rec.Waiting == 1
			})
			release(t, s, second)
			if err := <-lock; err != nil {
				t.Errorf("Acquire of another name: %v", err)
			}
			select {
			case <-granted:
				t.Fatal("the lock was granted while the transaction was open")
			default:
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			ended := time.Now()
			if took := (<-granted).Sub(ended); took > pgtest.Bound/4 {
				t.Errorf("the lock was granted %v after the end of the transaction", took)
			}
		})
	}
}

// A release beside a row that is open does nothing, and is as good as any when it
// is sent again; the hold is renewed when the row can be had.
func TestReleaseOfOpenRow(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "released_rows"), "pool_max_conns=4")
	for _, keep := range []time.Duration{0, time.Minute} {
		req := grant(t, s, "name "+keep.String(), time.Minute)
		unlock := lockAnyRow(t, s, req.Name)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if _, err := s.Release(ctx, olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep}); err == nil || keep > 0 && !driver.IsNotApplied(err) {
			t.Errorf("Release of a row that is locked: %v, want an error", err)
		}
		cancel()
		pgtest.Eventually(t, "end of the statement", func() bool {
			var waiting int
			query(t, s, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", nil, &waiting)
			return waiting == 0
		})
		if outcomes, err := s.Renew(t.Context(), pgtest.Renewals(req)); err == nil || outcomes[0] != olddriver.RenewUnknown {
			t.Errorf("Renew of a row that is locked: %v, %v, want it unknown", outcomes, err)
		}
		unlock()
		if got := renew(t, s, req); got[0] != olddriver.Renewed {
			t.Errorf("Renew afterwards: %v", got)
		}
		if ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep}); !ended || err != nil {
			t.Errorf("Release afterwards: %v, %v", ended, err)
		}
	}
}

// release_lock notifies waiters.
func TestReleaseLockNotifies(t *testing.T) {
	t.Parallel()
	s := open(t)
	var done bool
	query(t, s, "SELECT @acquire_lock@('name'::text, 'worker'::text, 3600)", nil, &done)
	notices := noticesOf(t, s)
	w := queueUp(t, s, "name", time.Minute)
	query(t, s, "SELECT @release_lock@('name'::text, 'worker'::text)", nil, &done)
	notices.expect(t, w)
}

// Each language has its numbers: the TTL may be of any of these types.
func TestAcquireLockTypes(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, ttl := range []string{"30", "30.0", "0.5", "30::smallint", "30::integer", "30::bigint", "30::real", "30::double precision", "30::numeric"} {
		var done bool
		query(t, s, "SELECT @acquire_lock@('name', 'worker', "+ttl+") AND @acquire_lock@('name'::varchar, 'worker'::varchar, "+ttl+", '{}')"+
			" AND @acquire_lock_token@('name', 'worker', "+ttl+") > 0 AND @extend_lock@('name', 'worker', "+ttl+") AND @release_lock@('name', 'worker')", nil, &done)
		if !done {
			t.Errorf("a TTL of %s does not work", ttl)
		}
	}
	for _, ttl := range []string{"0", "0.001", "'NaN'::double precision", "'infinity'::double precision", "31536001", "NULL::integer", "-1"} {
		for _, verb := range []string{"@acquire_lock@", "@acquire_lock_token@", "@extend_lock@"} {
			if err := s.execQuery(t.Context(), s.expandSQL("SELECT "+verb+"('name', 'worker', "+ttl+")")); err == nil {
				t.Errorf("%s with a TTL of %s is accepted", verb, ttl)
			}
		}
	}
	var left float64
	query(t, s, "SELECT @acquire_lock@('short'::text, 'worker'::text, 0.5::double precision)::integer", nil, new(int))
	query(t, s, "SELECT extract(epoch FROM expires_at - acquired_at)::double precision FROM @table@ WHERE lock_name = 'short'", nil, &left)
	if left != 0.5 {
		t.Errorf("a TTL of half a second is %v s", left)
	}
}
