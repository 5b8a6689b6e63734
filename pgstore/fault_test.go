//go:build unix

package pgstore

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// freeze stops the server processes of a pool, as a hung machine does, until the
// test ends.
func freeze(t *testing.T, watching *engine, application string) {
	t.Helper()
	var pids []int
	if err := watching.queryRows(t.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = $1", []any{application}, func() {}, func(scan scanner) error {
		var pid int
		err := scan(&pid)
		pids = append(pids, pid)
		return err
	}); err != nil || len(pids) == 0 {
		t.Fatalf("%d processes of %s: %v", len(pids), application, err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // It may be gone.
	}
}

// A holder whose server processes hang, a renewal under way in one, knows that
// its lock is over before another is granted it.
func TestFrozenBackend(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // The context ends 1% of it before the hold: a busy machine is late.
	schema := newSchema(t)
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns, config.ConnConfig.RuntimeParams["application_name"] = 1, "frozen"
	// Such a pool has no connection beside it: the server has processes that do not hang.
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := newPoolEngine(pool, &Options{Schema: schema, NoListen: true})
	locks := holdfast.New(newStore(store), nil)
	t.Cleanup(func() {
		_ = locks.Close() // It cannot release what is frozen.
		_ = store.Close()
	})
	lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	other := openIn(t, schema)
	freeze(t, other, "frozen")
	over := make(chan struct{})
	go func() {
		<-lock.Context().Done()
		close(over)
	}()
	req := pgtest.Request("name", time.Minute)
	pgtest.Eventually(t, "grant to another", func() bool {
		res, err := other.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	select {
	case <-over:
	default:
		t.Error("another was granted the lock while its holder believed in it")
	}
	if lock.Err() == nil {
		t.Error("another was granted the lock, and Err is nil")
	}
}

// proxied returns a store whose connections lead through a proxy.
func proxied(t *testing.T, schema string, parameters ...string) (*engine, *faultproxy.Proxy) {
	t.Helper()
	server := pgtest.Postgres()
	proxy := faultproxy.Start(t, server.Addr)
	pool := pgtest.OpenPool(t, strings.Replace(server.URL("postgres"), server.Addr, proxy.Addr(), 1), parameters...)
	s := newPoolEngine(pool, &Options{Schema: schema})
	t.Cleanup(func() { _ = s.Close() })
	return s, proxy
}

// A call that is cancelled while its statement is under way learns how that has
// ended, and the connection is as good as before.
func TestCancelledCallKeepsItsConnection(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t), "pool_max_conns=1")
	release(t, s, grant(t, s, "name", time.Minute))
	pid := backend(t, s)
	proxy.Delay(faultproxy.Down, 50*time.Millisecond, 50*time.Millisecond)
	timeout := 10 * time.Millisecond
	for range 5 {
		req := pgtest.Request("name", time.Hour)
		res, err := acquireWithin(t, s, req, timeout)
		for driver.IsNotApplied(err) && timeout < 10*time.Second {
			timeout *= 2 // A busy machine did not send it in time.
			res, err = acquireWithin(t, s, req, timeout)
		}
		if err != nil || !res.Granted {
			t.Fatalf("an Acquire that was cancelled under way: %+v, %v, want its outcome", res, err)
		}
		if !release(t, s, req) {
			t.Error("the lock of a cancelled Acquire is not there to be released")
		}
	}
	if now := backend(t, s); now != pid {
		t.Errorf("the connection has been replaced: process %d, was %d", now, pid)
	}
}

func acquireWithin(t *testing.T, s *engine, req olddriver.AcquireRequest, timeout time.Duration) (olddriver.AcquireResult, error) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return s.Acquire(ctx, req)
}

// The answer to a Renew or a Release that was lost is neither a loss nor a proof
// that nothing was done.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t), "default_query_exec_mode=exec")
	for range 5 {
		req := grant(t, s, "name", time.Minute)
		proxy.LoseReply(isStatement)
		outcomes, err := s.Renew(t.Context(), pgtest.Renewals(req, pgtest.Request("other", time.Minute)))
		if err == nil || driver.IsNotApplied(err) {
			t.Errorf("Renew without an answer: %v, want an error that leaves it open", err)
		}
		for _, outcome := range outcomes {
			if outcome != olddriver.RenewUnknown {
				t.Errorf("the outcome without an answer is %d, want RenewUnknown", outcome)
			}
		}
		if got := renew(t, s, req); got[0] != olddriver.Renewed {
			t.Errorf("Renew after it: %v, want Renewed", got)
		}
		proxy.LoseReply(isStatement)
		if _, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err == nil || driver.IsNotApplied(err) {
			t.Errorf("Release without an answer: %v, want an error that leaves it open", err)
		}
		if release(t, s, req) {
			t.Error("the Release sent again reports a hold")
		}
	}
}

// A call to a server that does not answer ends soon after its context.
func TestHungNetwork(t *testing.T) {
	t.Parallel()
	s, proxy := proxied(t, newSchema(t))
	grant(t, s, "name", time.Minute)
	proxy.Hold(faultproxy.Down)
	for what, call := range calls(s, "name") {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(began); err == nil || took > pgtest.Bound {
			t.Errorf("%s through a network that hangs: %v, after %v", what, err, took)
		}
	}
	proxy.Pass(faultproxy.Down)
	pgtest.Eventually(t, "answer when the network is back", func() bool {
		_, found, err := s.Lookup(t.Context(), "name")
		return err == nil && found
	})
}

// A server process that is terminated has done nothing that is not known, and
// the next call has another.
func TestTerminatedBackend(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=1")
	req := grant(t, s, "name", time.Minute)
	other := openIn(t, s.options.Schema)
	var done bool
	query(t, other, "SELECT pg_terminate_backend($1)", []any{backend(t, s)}, &done)
	pgtest.Eventually(t, "another connection", func() bool {
		outcomes, err := s.Renew(t.Context(), pgtest.Renewals(req))
		return err == nil && outcomes[0] == olddriver.Renewed
	})
}

func backend(t *testing.T, s *engine) int64 {
	t.Helper()
	var pid int64
	query(t, s, "SELECT pg_backend_pid()::bigint", nil, &pid)
	return pid
}
