//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// takeAll takes all connections of a pool.
func takeAll(t *testing.T, pool *pgxpool.Pool) (giveBack func()) {
	t.Helper()
	var all []*pgxpool.Conn
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return sync.OnceFunc(func() {
		for _, c := range all {
			c.Release()
		}
	})
}

// Other work of the caller may have all connections of the pool for as long as it likes: locks are
// renewed, on one connection at a time, which the pool's hook has set up, and which is closed after
// it. A pool that prepares its connections for each use has none beside it.
func TestRenewalsOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	pool := func(name string, change func(*pgxpool.Config)) *pgxpool.Pool {
		config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns, config.ConnConfig.RuntimeParams["application_name"] = 2, name
		if change != nil {
			change(config)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	application := schema // a name of its own
	var mu sync.Mutex
	hooked, closed := 0, 0
	of := pool(application, func(config *pgxpool.Config) {
		config.AfterConnect = func(context.Context, *pgx.Conn) error {
			mu.Lock()
			defer mu.Unlock()
			hooked++
			return nil
		}
		config.BeforeClose = func(*pgx.Conn) {
			mu.Lock()
			defer mu.Unlock()
			closed++
		}
	})
	s := New(of, &Options{Schema: schema})
	t.Cleanup(func() { _ = s.Close() })
	held, token := grantToken(t, s, "name", time.Minute)
	giveBack := takeAll(t, of)
	defer giveBack()
	renew := func(s *Store) driver.RenewOutcome {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		outcomes, err := s.Renew(ctx, []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Minute, Token: token}})
		if err != nil {
			t.Logf("Renew: %v", err)
			return driver.RenewUnknown
		}
		return outcomes[0]
	}
	for range 2 {
		if got := renew(s); got != driver.Renewed {
			t.Errorf("a renewal beside an exhausted pool: %v", got)
		}
	}
	pgtest.Eventually(t, "a connection for each renewal, beside two of the pool, that was set up and closed by the hooks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return hooked == 4 && closed == 2
	})
	watching := openIn(t, schema)
	pgtest.Eventually(t, "the connections of the renewals are closed", func() bool {
		var n int
		query(t, watching, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", []any{application}, &n)
		return n == 2
	})
	prepared := pool(application+"/prepared", func(config *pgxpool.Config) {
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	})
	other := New(prepared, &Options{Schema: schema})
	t.Cleanup(func() { _ = other.Close() })
	giveBackPrepared := takeAll(t, prepared)
	if got := renew(other); got != driver.RenewUnknown {
		t.Errorf("a renewal beside a pool that prepares its connections: %v", got)
	}
	giveBackPrepared()
	if got := renew(other); got != driver.Renewed {
		t.Errorf("a renewal by the pool: %v", got)
	}
}

// Requests that wait for rows which a transaction has locked do not cost other locks their
// renewals.
func TestRenewalsBesideOpenRows(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=2")
	rows := openIn(t, s.options.Schema)
	names := strings.Fields("a b c d e f g h i j k l")
	for _, name := range names {
		grant(t, rows, name, time.Minute)
	}
	tx, err := pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), s.expandSQL("SELECT FROM @table@ FOR UPDATE")); err != nil {
		t.Fatal(err)
	}
	client := holdfast.New(s, nil)
	lock, err := client.Acquire(t.Context(), "held", &holdfast.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var waiting sync.WaitGroup
	for _, name := range names {
		waiting.Go(func() { _, _ = client.Acquire(ctx, name, nil) })
	}
	waiting.Wait()
	if err = lock.Err(); err != nil {
		t.Errorf("beside requests that wait for rows: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// A server process that hangs costs no lock: it is renewed by another.
func TestRenewalsBesideAHungProcess(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	s := open(t, "application_name=hung", "pool_max_conns=1")
	client := holdfast.New(s, nil)
	t.Cleanup(func() { _ = client.Close() }) // It cannot release by what is frozen.
	lock, err := client.Acquire(t.Context(), "name", &holdfast.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, openIn(t, s.options.Schema), "hung")
	select {
	case <-lock.Context().Done():
		t.Errorf("beside a server process that hangs: %v", lock.Err())
	case <-time.After(ttl + ttl/2):
	}
}

// Requests to renew that come at the same time, as of several Clients, pass one spare connection
// on. An acquisition has none, nor has a renewal that need not wait for half of its time.
func TestManyRenewalsOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	const renewals = 40
	schema := newSchema(t)
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	config.MaxConns = 2
	config.AfterConnect = func(context.Context, *pgx.Conn) error { made.Add(1); return nil }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := New(pool, &Options{Schema: schema})
	t.Cleanup(func() { _ = s.Close() })
	var reqs []driver.RenewRequest
	for i := range renewals {
		held, token := grantToken(t, s, fmt.Sprint(i), time.Minute)
		reqs = append(reqs, driver.RenewRequest{Name: held.Name, Owner: held.Owner, TTL: time.Minute, Token: token})
	}
	giveBack := takeAll(t, pool)
	before := made.Load()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if res, err := s.Acquire(short, pgtest.Request("free", time.Minute)); err == nil || made.Load() != before {
		t.Errorf("an acquisition: %+v, %v, with %d connections beside the pool", res, err, made.Load()-before)
	}
	time.AfterFunc(time.Second, giveBack)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if outcomes, err := s.Renew(ctx, reqs[:1]); err != nil || outcomes[0] != driver.Renewed || made.Load() != before {
		t.Errorf("a renewal that waits for a second of eight: %v, %v, with %d connections beside the pool", outcomes, err, made.Load()-before)
	}
	defer takeAll(t, pool)()
	ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, req := range reqs {
		all.Go(func() {
			outcomes, err := s.Renew(ctx, []driver.RenewRequest{req})
			if err != nil || outcomes[0] != driver.Renewed {
				t.Errorf("%s: %v, %v", req.Name, outcomes, err)
			}
		})
	}
	all.Wait()
	if n := made.Load() - before; n < 1 || n > renewals/4 {
		t.Errorf("%d renewals have made %d connections", renewals, n)
	}
}

// A renewal keeps its turn in the pool, before work that came later, where it gets no connection
// beside the pool: the server refuses one, does not answer, or the pool has none for it. When the
// server accepts connections again, the next renewal has one.
func TestRenewalKeepsItsTurn(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"refused", "hung", "prepared"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			schema := newSchema(t)
			config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = 1
			var full atomic.Bool
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				switch {
				case full.Load() && kind == "refused":
					return nil, errors.New("too many clients already")
				case full.Load() && kind == "hung":
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, network, addr)
			}
			if kind == "prepared" {
				config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			s := New(pool, &Options{Schema: schema})
			t.Cleanup(func() { _ = s.Close() })
			held, token := grantToken(t, s, "name", time.Minute)
			renew := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				outcomes, err := s.Renew(ctx, []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Minute, Token: token}})
				if err == nil && outcomes[0] != driver.Renewed {
					err = fmt.Errorf("outcome %v", outcomes[0])
				}
				return err
			}
			giveBack := takeAll(t, pool)
			full.Store(true)
			renewed := make(chan error, 1)
			go func() { renewed <- renew() }()
			time.Sleep(300 * time.Millisecond) // The pool has no signal for a request that is in its line.
			later := make(chan func(), 1)
			go func() {
				if c, err := pool.Acquire(t.Context()); err == nil {
					later <- c.Release
				}
			}()
			time.AfterFunc(2*time.Second, giveBack) // in the second half of the time of the renewal
			if err := <-renewed; err != nil {
				t.Errorf("a renewal before other work: %v", err)
			}
			release := <-later
			full.Store(false)
			if err := renew(); (err == nil) != (kind != "prepared") {
				t.Errorf("a renewal when there are connections again: %v", err)
			}
			release()
		})
	}
}

// Close ends a renewal that waits for the pool, and for a connection beside it.
func TestCloseBesideAnExhaustedPool(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	var full atomic.Bool
	dialing := make(chan struct{})
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if full.Swap(false) {
			close(dialing)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := New(pool, &Options{Schema: schema})
	held, token := grantToken(t, s, "name", time.Minute)
	defer takeAll(t, pool)()
	full.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	renewed := make(chan error, 1)
	go func() {
		_, err := s.Renew(ctx, []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Minute, Token: token}})
		renewed <- err
	}()
	<-dialing
	if err := s.Close(); err != nil || ctx.Err() != nil {
		t.Errorf("Close: %v, %v", err, ctx.Err())
	}
	if err := <-renewed; err == nil {
		t.Error("the renewal had no connection")
	}
}

// A caller that gets no connection of the pool learns why: the server is well.
func TestErrorOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=2")
	db := stdlib.OpenDB(*s.pool.(pgxPool).Config().ConnConfig)
	db.SetMaxOpenConns(1)
	other := NewDB(db, &Options{Schema: s.options.Schema})
	t.Cleanup(func() { _ = errors.Join(other.Close(), db.Close()) })
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	defer takeAll(t, s.pool.(pgxPool).Pool)()
	for of, s := range map[string]*Store{"2 of 2 are in use": s, "1 of 1 are in use": other} {
		client := holdfast.New(s, &holdfast.Config{RequestTimeout: 300 * time.Millisecond})
		_, err := client.TryAcquire(t.Context(), "name", nil)
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), of) {
			t.Errorf("TryAcquire: %v, want %q", err, of)
		}
		if err := client.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), of) {
			t.Errorf("Ping: %v, want %q", err, of)
		}
		_ = client.Close()
	}
}
