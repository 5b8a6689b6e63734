//go:build unix

package advisory

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// serverURL is that of the database at an address.
func serverURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// open returns a store that is closed with the test.
func open(tb testing.TB, addr string, opts *Options) *engine {
	tb.Helper()
	s := newEngine(pgtest.OpenPool(tb, serverURL(addr), "pool_max_conns=2"), opts)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// grant takes a lock that must be free.
func grant(t *testing.T, s *engine, name string, ttl time.Duration) olddriver.AcquireRequest {
	t.Helper()
	req := pgtest.Request(name, ttl)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it granted", name, res, err)
	}
	return req
}

// attempt makes an attempt of an owner that waits.
func attempt(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	req.Queue = time.Hour
	res, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q: %v", req.Name, err)
	}
	return res
}

// queue makes another owner wait for a name that is held.
func queue(t *testing.T, s *engine, name string) olddriver.AcquireRequest {
	t.Helper()
	req := pgtest.Request(name, time.Minute)
	if res := attempt(t, s, req); res.Granted || !res.Queued || res.First {
		t.Fatalf("Acquire of %q by a waiter: %+v, want it queued", name, res)
	}
	return req
}

// asksOf returns a channel that is signaled by the Ask notices of an owner.
func asksOf(t *testing.T, s *engine, owner string) <-chan struct{} {
	asks := make(chan struct{}, 1)
	t.Cleanup(s.Notify(func(n olddriver.Notice) {
		if n.Kind == olddriver.Ask && (n.Owner == owner || n.Owner == "") {
			select {
			case asks <- struct{}{}:
			default:
			}
		}
	}))
	return asks
}

// refused checks that a lock is not free.
func refused(t *testing.T, s *engine, name string) {
	t.Helper()
	res, err := s.Acquire(t.Context(), pgtest.Request(name, time.Minute))
	if err != nil || res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it refused", name, res, err)
	}
}

func release(t *testing.T, s *engine, req olddriver.AcquireRequest) bool {
	t.Helper()
	ours, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release of %q: %v", req.Name, err)
	}
	return ours
}

func renew(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.RenewOutcome {
	t.Helper()
	outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil {
		t.Fatalf("Renew of %q: %v", req.Name, err)
	}
	return outcomes[0]
}

// takes tries until a lock is granted, and returns when it was.
func takes(t *testing.T, s *engine, name string) time.Time {
	t.Helper()
	req := pgtest.Request(name, time.Minute)
	pgtest.Eventually(t, "free lock", func() bool {
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	return time.Now()
}

// ways knows the way that each store takes to its server.
type ways struct {
	sync.Mutex
	of map[olddriver.Store]*faultproxy.Proxy
}

func (p *ways) open(tb testing.TB, addr string, opts *Options) *engine {
	tb.Helper()
	proxy := faultproxy.Start(tb, addr)
	s := open(tb, proxy.Addr(), opts)
	p.Lock()
	defer p.Unlock()
	if p.of == nil {
		p.of = map[olddriver.Store]*faultproxy.Proxy{}
	}
	p.of[s] = proxy
	return s
}

func (p *ways) through(s olddriver.Store) *faultproxy.Proxy {
	p.Lock()
	defer p.Unlock()
	return p.of[s]
}

// keysOf are options that keep the locks of a test apart from those of others.
func keysOf(tb testing.TB) *Options {
	return &Options{Keys: SHA256Keys(tb.Name())}
}
