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
	"github.com/holdfast-go/holdfast/internal/olddriver"
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
// renewed, on one more that is made as the pool makes them, and closed. Pools that prepare their
// connections for each use have none.
func TestRenewalsOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	var hooked, closed atomic.Int64
	for _, isPrepared := range []bool{false, true} {
		pool := smallPool(t, func(config *pgxpool.Config) {
			config.AfterConnect = func(context.Context, *pgx.Conn) error { hooked.Add(1); return nil }
			config.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
			if isPrepared {
				config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
			}
		})
		s := newPoolEngine(pool, &Options{Schema: schema})
		t.Cleanup(func() { _ = s.Close() })
		renew := renewal(t, s)
		giveBack := takeAll(t, pool)
		hooked.Store(0)
		if err := renew(); (err != nil) != isPrepared {
			t.Errorf("a renewal beside an exhausted pool that prepares its connections, %v: %v", isPrepared, err)
		}
		if !isPrepared {
			pgtest.Eventually(t, "end of a connection by the hooks", func() bool { return hooked.Load() == 1 && closed.Load() == 1 })
		}
		giveBack()
		if err := renew(); err != nil {
			t.Errorf("a renewal by the pool: %v", err)
		}
	}
}

// smallPool is a pool of one connection.
func smallPool(t *testing.T, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	change(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// renewal takes a lock and returns a function that renews it within three seconds.
func renewal(t *testing.T, s *engine) func() error {
	t.Helper()
	held, token := grantToken(t, s, fmt.Sprint("name of ", s.notifier.channel), time.Minute)
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		outcomes, err := s.Renew(ctx, []olddriver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Minute, Token: token}})
		if err == nil && outcomes[0] != olddriver.Renewed {
			err = fmt.Errorf("outcome %v", outcomes[0])
		}
		return err
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
	client := holdfast.New(newStore(s), nil)
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
	client := holdfast.New(newStore(s), nil)
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

// A renewal keeps its turn in the pool, before work that came later, where it gets no connection
// beside the pool.
func TestRenewalKeepsItsTurn(t *testing.T) {
	t.Parallel()
	for _, isHung := range []bool{false, true} {
		var full atomic.Bool
		pool := smallPool(t, func(config *pgxpool.Config) {
			dial := config.ConnConfig.DialFunc
			config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				switch {
				case full.Load() && isHung:
					<-ctx.Done()
					return nil, ctx.Err()
				case full.Load():
					return nil, errors.New("too many clients already")
				}
				return dial(ctx, network, addr)
			}
		})
		s := newPoolEngine(pool, &Options{Schema: newSchema(t)})
		t.Cleanup(func() { _ = s.Close() })
		renew := renewal(t, s)
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
		release()
	}
}

// A caller that gets no connection of the pool learns why: the server is well.
func TestErrorOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=2")
	db := stdlib.OpenDB(*s.pool.(pgxPool).Config().ConnConfig)
	db.SetMaxOpenConns(1)
	other := newDBEngine(db, &Options{Schema: s.options.Schema})
	t.Cleanup(func() { _ = errors.Join(other.Close(), db.Close()) })
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	defer takeAll(t, s.pool.(pgxPool).Pool)()
	for of, s := range map[string]*engine{"2 of 2 are in use": s, "1 of 1 are in use": other} {
		client := holdfast.New(newStore(s), &holdfast.Config{RequestTimeout: 300 * time.Millisecond})
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
