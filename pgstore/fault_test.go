//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// openDatabase makes a database with tables of locks, in which transactions may stay open:
// elsewhere they would keep the tables of other tests from being cleaned.
func openDatabase(t *testing.T, name string) (url string) {
	t.Helper()
	admin := pgtest.Postgres().URL("postgres")
	pgtest.Execute(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	pgtest.Execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { pgtest.Execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	url = pgtest.Postgres().URL(name)
	migrate(t, url, nil)
	return url
}

func openAt(t *testing.T, url string, parameters ...string) *Store {
	t.Helper()
	s := New(pgtest.OpenPool(t, url, parameters...), nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// leaveOpen runs a statement in a transaction that goes on.
func leaveOpen(t *testing.T, s *Store, text string, args ...any) pgx.Tx {
	t.Helper()
	tx := pgtest.Begin(t, s.pool)
	if _, err := tx.Exec(t.Context(), s.sql(text), args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

// openTransactions are ways to leave the row of a name locked, as clients do whose libraries begin
// transactions by themselves.
var openTransactions = map[string]struct {
	exists bool
	leave  string
	takes  bool // the lock, if it is committed
}{
	"row locked":         {true, "SELECT FROM @.locks WHERE name = $1 FOR UPDATE", false},
	"acquired":           {true, "SELECT @.acquire_lock($1, 'worker')", true},
	"acquired the first": {false, "SELECT @.acquire_lock($1, 'worker')", true},
	"deleted":            {true, "DELETE FROM @.locks WHERE name = $1", false},
}

// While somebody's transaction has the row of a name open, it is not known whether the name is
// held: an attempt ends after a moment, with an error that says that it may be made again. Other
// names are acquired, renewed and released meanwhile, in one batch with it, too. A waiter gets the
// lock when the transaction has ended.
func TestOpenRow(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "open_rows")
	for what, open := range openTransactions {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := openAt(t, url)
			if open.exists {
				req, _ := grant(t, s, what, time.Minute)
				release(t, s, req)
			}
			held, _ := grant(t, s, what+" held", time.Minute)
			tx := leaveOpen(t, s, open.leave, what)
			var attempts sync.WaitGroup
			for i := range 12 { // The first is sent alone, and the others together while it waits.
				name := fmt.Sprint(what, max(i-1, 0))
				if i < 2 {
					name = what
					time.Sleep(2 * time.Millisecond)
				}
				attempts.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
					defer cancel()
					res, err := s.Acquire(ctx, request(name, time.Minute))
					if later := (*driver.RetryError)(nil); i < 2 && !errors.As(err, &later) || i > 1 && !res.Granted {
						t.Errorf("Acquire of %s: %v, %v, want a RetryError for the locked row alone", name, res, err)
					}
				})
			}
			req, _ := grant(t, s, what+" other", time.Minute)
			if got, err := s.Renew(t.Context(), []driver.RenewRequest{
				{Name: what, Owner: "nobody", TTL: time.Minute}, {Name: held.Name, Owner: held.Owner, TTL: time.Minute},
			}); open.exists && err == nil || got[1].State != driver.Held {
				t.Errorf("Renew beside a locked row: %v, %v", got, err)
			}
			if !release(t, s, req) {
				t.Error("a release beside a locked row")
			}
			attempts.Wait()
			locks := holdfast.New(s, nil)
			granted := make(chan error, 1)
			go func() {
				lock, err := locks.Acquire(t.Context(), what, &holdfast.Options{Wait: pgtest.Bound})
				if err == nil {
					err = lock.Release()
				}
				granted <- err
			}()
			select {
			case err := <-granted:
				t.Fatalf("the wait has ended while the transaction was open: %v", err)
			case <-time.After(1500 * time.Millisecond): // longer than one attempt
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if open.takes {
				if rec := refuse(t, s, what); rec.Holder != "worker" {
					t.Errorf("when the transaction is committed the lock is shown as %+v", rec)
				}
				value[bool](t, s, "SELECT @.release_lock($1, 'worker')", what)
			}
			if err := <-granted; err != nil {
				t.Errorf("the waiter: %v", err)
			}
			_ = locks.Close()
		})
	}
}

// Rows that stay locked cost no renewal beside them, and none of a row that comes free meanwhile:
// one wait is for all. While the row of one's own lock is locked, the functions say so.
func TestRenewBesideOpenRow(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "renewed_rows"))
	states := map[string]driver.State{"a": driver.Held, "c": driver.Held, "d": driver.Held}
	var reqs []driver.RenewRequest
	var ended sync.WaitGroup
	for _, name := range strings.Split("abcdefghij", "") {
		value[bool](t, s, "SELECT @.acquire_lock($1, 'me', 60)", name)
		reqs = append(reqs, driver.RenewRequest{Name: name, Owner: "me", TTL: time.Minute})
	}
	leaveOpen(t, s, "SELECT FROM @.locks WHERE name NOT IN ('a', 'c', 'd') FOR SHARE")
	for _, call := range []string{"acquire_lock('b', 'me', 60)", "acquire_lock_token('b', 'me', 60)", "extend_lock('b', 'me', 60)"} {
		if _, err := s.pool.Exec(t.Context(), s.sql("SELECT @."+call)); pgclient.SQLState(err) != lockNotAvailable {
			t.Errorf("%s: %v, want lock_not_available", call, err)
		}
	}
	for _, name := range []string{"a", "c"} {
		tx := leaveOpen(t, s, "SELECT FROM @.locks WHERE name = $1 FOR UPDATE", name)
		ended.Go(func() {
			time.Sleep(100 * time.Millisecond) // as a slow commit
			_ = tx.Rollback(context.Background())
		})
	}
	began := time.Now()
	entries, err := s.Renew(t.Context(), reqs)
	if err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("Renew of %d locks: %v, after %v", len(reqs), err, time.Since(began))
	}
	ended.Wait()
	for i, req := range reqs {
		if entries[i].State != states[req.Name] {
			t.Errorf("%s: %v, want %v", req.Name, entries[i].State, states[req.Name])
		}
	}
}

// A release beside a row that is open is as good as any when it is sent again, and one slow commit
// is waited for, as by a renewal.
func TestReleaseOfOpenRow(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "released_rows"))
	for _, keep := range []time.Duration{0, time.Minute} {
		req, _ := grant(t, s, "name "+keep.String(), time.Minute)
		tx := leaveOpen(t, s, "SELECT FROM @.locks WHERE name = $1 FOR UPDATE", req.Name)
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep}); !driver.IsNotApplied(err) {
			t.Errorf("Release of a row that is locked: %v, want it not applied", err)
		}
		var committed sync.WaitGroup
		commitLate := func(tx pgx.Tx) {
			committed.Go(func() {
				time.Sleep(400 * time.Millisecond) // as long as the disk
				_ = tx.Rollback(context.Background())
			})
		}
		commitLate(tx)
		if got := state(t, s, req); got != driver.Held {
			t.Errorf("Renew beside a slow commit: %v", got)
		}
		committed.Wait()
		commitLate(leaveOpen(t, s, "SELECT FROM @.locks WHERE name = $1 FOR UPDATE", req.Name))
		if ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: keep}); !ended || err != nil {
			t.Errorf("Release beside a slow commit: %v, %v", ended, err)
		}
		committed.Wait()
	}
}

// Requests for many names, in any order, do not wait for each other in a circle, be the names new
// or known.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "deadlock_timeout=10ms", "fsync=off", "log_min_messages=fatal")
	migrate(t, server.URL("postgres"), nil)
	tries := 40 * rounds(1)
	var all sync.WaitGroup
	for w := range 4 {
		s := openAt(t, server.URL("postgres"))
		for g := range 16 {
			all.Go(func() {
				for i := range tries {
					set := fmt.Sprint("set ", (i+g)/8, " name ")
					req := request(fmt.Sprint(set, (i*7+w*5+g*3)%12), time.Minute)
					if i%2 == 0 {
						req.Place = time.Minute
					}
					if i%5 == 0 {
						req.Limit = 3
					}
					if _, err := s.Acquire(t.Context(), req); err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if i%3 == 0 {
						var renewals []driver.RenewRequest
						for n := range 12 {
							renewals = append(renewals, driver.RenewRequest{Name: fmt.Sprint(set, 11-n), Owner: req.Owner, TTL: time.Minute})
						}
						_, _ = s.Renew(t.Context(), renewals) // Rows may be locked.
					}
					if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
						t.Errorf("Release: %v", err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	s := openAt(t, server.URL("postgres"))
	pgtest.Eventually(t, "statistics", func() bool {
		return value[int64](t, s, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()") > 0
	})
	if n := value[int64](t, s, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// freeze stops the server processes of an application, as a hung machine does, until the test ends.
func freeze(t *testing.T, watching *Store, application string) {
	t.Helper()
	pids, err := query(t.Context(), watching, watching.pool.Acquire, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", []any{application}, pgx.RowTo[int])
	if err != nil || len(pids) == 0 {
		t.Fatalf("%d processes of %s: %v", len(pids), application, err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // It may be gone.
	}
}

// smallPool is a pool of one connection, made if connect returns nil.
func smallPool(t *testing.T, application string, connect func() error) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns, config.ConnConfig.RuntimeParams["application_name"] = 1, application
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return connect() }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A holder whose server processes hang, a renewal under way in one, knows that its lock is over
// before another is granted it. If there may be a connection beside the pool, the lock is renewed
// by that.
func TestHungProcess(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second // The context ends 1% of it before the hold: a busy machine is late.
	for application, beside := range map[string]bool{"hung": true, "frozen": false} {
		t.Run(application, func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			schema := newSchema(t)
			store := New(smallPool(t, application, func() error {
				if down.Load() {
					return errors.New("no connection")
				}
				return nil
			}), &Options{Schema: schema})
			locks := holdfast.New(store, nil)
			t.Cleanup(func() { _, _ = locks.Close(), store.Close() }) // It cannot release what is frozen.
			lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			other := openIn(t, schema)
			down.Store(!beside)
			freeze(t, other, application)
			if beside {
				select {
				case <-lock.Context().Done():
					t.Errorf("beside a server process that hangs: %v", lock.Err())
				case <-time.After(ttl + ttl/2):
				}
				return
			}
			req := request("name", time.Minute)
			pgtest.Eventually(t, "grant to another", func() bool {
				res, err := other.Acquire(t.Context(), req)
				return err == nil && res.Granted
			})
			if lock.Context().Err() == nil || lock.Err() == nil {
				t.Error("another was granted the lock while its holder believed in it")
			}
		})
	}
}

// Other work of the caller may have all connections of the pool for as long as it likes: locks are
// renewed, on one more. A caller that gets no connection learns why.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	pool := smallPool(t, "small", func() error { return nil })
	s := New(pool, &Options{Schema: newSchema(t)})
	db := stdlib.OpenDBFromPool(pool)
	other := NewDB(db, &Options{Schema: s.schema})
	t.Cleanup(func() { _ = errors.Join(s.Close(), other.Close(), db.Close()) })
	held, _ := grant(t, s, "name", time.Minute)
	heldToo, _ := grant(t, other, "name too", time.Minute)
	locks := holdfast.New(s, nil)
	t.Cleanup(func() { _ = locks.Close() })
	short, err := locks.TryAcquire(t.Context(), "short", &holdfast.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	other.pool.Reset() // as if the time of its connections were over
	for s, req := range map[*Store]driver.Request{s: held, other: heldToo} {
		ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
		defer cancel()
		if got, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Minute}}); err != nil || got[0].State != driver.Held {
			t.Errorf("a renewal beside an exhausted pool: %v, %v", got, err)
		}
	}
	client := holdfast.New(s, &holdfast.Config{RequestTimeout: 300 * time.Millisecond})
	if _, err := client.TryAcquire(t.Context(), "other", nil); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "no connection of the pool") {
		t.Errorf("TryAcquire: %v", err)
	}
	_ = client.Close()
	select {
	case <-short.Context().Done():
		t.Errorf("a lock with a short TTL beside an exhausted pool: %v", short.Err())
	case <-time.After(3 * time.Second):
	}
}

// Behind a pooler that is used up by other work, locks are renewed at the address of the server.
func TestExhaustedPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	bouncer := servers.StartPgBouncer(t, server, "default_pool_size=1")
	s := New(pgtest.OpenPool(t, bouncer.URL("postgres")), &Options{Schema: newSchema(t), Listen: server.URL("postgres")})
	t.Cleanup(func() { _ = s.Close() })
	req, _ := grant(t, s, "name", time.Minute)
	leaveOpen(t, s, "SELECT 1")
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
	defer cancel()
	if got, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Minute}}); err != nil || got[0].State != driver.Held {
		t.Errorf("a renewal beside an exhausted pooler: %v, %v", got, err)
	}
}

// Behind a pooler no statement runs in the place of another one, whichever mode the pool has.
func TestModesBehindPooler(t *testing.T) {
	t.Parallel()
	url := servers.StartPgBouncer(t, pgtest.Postgres(), "default_pool_size=1").URL("postgres")
	const mode = "default_query_exec_mode=describe_exec"
	opts := &Options{Schema: newSchema(t)}
	for _, s := range []*Store{New(pgtest.OpenPool(t, url, mode), opts), NewDB(pgtest.OpenSQL(t, url, mode), opts)} {
		t.Cleanup(func() { _ = s.Close() })
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, err := s.Lookup(t.Context(), "name"); err != nil {
					t.Errorf("Lookup: %v", err)
				}
			})
			all.Go(func() {
				for _, err := range s.List(t.Context(), "") {
					t.Errorf("List: %v", err)
				}
			})
		}
		all.Wait()
	}
}

// Close does not wait for a server that does not answer.
func TestHungNetwork(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	u, err := url.Parse(strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr(), 1) + "&schema=" + url.QueryEscape(newSchema(t)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	grant(t, s, "name", time.Minute)
	proxy.Hold(faultproxy.Up)
	proxy.Hold(faultproxy.Down)
	began := time.Now()
	_ = s.Close()
	if took := time.Since(began); took > pgtest.Bound {
		t.Errorf("Close takes %v", took)
	}
	proxy.Reset()
}

// A server that has no connection left, or is starting, expects to serve later.
func TestRetryErrors(t *testing.T) {
	t.Parallel()
	for code, says := range map[string]string{"53300": "no connection left", "57P03": "starting or stopping"} {
		s := New(smallPool(t, "small", func() error { return &pgconn.PgError{Code: code} }), nil)
		t.Cleanup(func() { _ = s.Close() })
		fails(t, s, driver.ErrNotApplied, says, "Acquire", "Renew", "Release", "Lookup", "Break", "List")
		var retry *driver.RetryError
		if _, err := s.Acquire(t.Context(), request("name", time.Minute)); !errors.As(err, &retry) {
			t.Errorf("Acquire from a server that answers %s: %v, want a RetryError", code, err)
		}
	}
}

// An unfit server is reported as what it is, and nothing was changed.
func TestUnfitServers(t *testing.T) {
	t.Parallel()
	url := pgtest.Postgres().URL("postgres")
	all := []string{"Acquire", "Renew", "Release", "Lookup", "Break", "List"}
	missing := New(pgtest.OpenPool(t, url), &Options{Schema: "nowhere"})
	t.Cleanup(func() { _ = missing.Close() })
	fails(t, missing, driver.ErrNotApplied, "holdfast migrate", all...)
	schema := newSchema(t)
	fails(t, openIn(t, schema, "default_transaction_read_only=on"), driver.ErrNotApplied, "connect to the primary", "Acquire", "Release", "Break")
	pgtest.Execute(t, url, "DO $$ BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	stranger := New(pgtest.OpenPool(t, strings.Replace(url, "postgres@", "stranger@", 1)), &Options{Schema: schema})
	t.Cleanup(func() { _ = stranger.Close() })
	fails(t, stranger, driver.ErrNotApplied, "needs USAGE on the schema", all...)
	s := openIn(t, schema)
	execute(t, s, "INSERT INTO @.locks VALUES ('nonsense', 'x', 'infinity', 1, 1, 'infinity', 1, 1, false, false, 'x', '[1]')")
	if _, err := s.Lookup(t.Context(), "nonsense"); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("Lookup of a row that was written by hand: %v", err)
	}
}

// A statement that the server cuts short has changed nothing, and a lock on a whole table is no
// hold.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "timeouts")
	s := openAt(t, url, "statement_timeout=200")
	tx := leaveOpen(t, openAt(t, url), "LOCK TABLE @.locks IN ACCESS EXCLUSIVE MODE")
	fails(t, s, driver.ErrNotApplied, "statement_timeout", "Acquire", "Release", "Break")
	fails(t, openAt(t, url), driver.ErrNotApplied, "the table or the row", "Acquire")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}
