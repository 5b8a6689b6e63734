//go:build unix

package pgstore

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// advisoryURL is that of the database at an address.
func advisoryURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// openAdvisory returns a store that is closed with the test.
func openAdvisory(tb testing.TB, addr string, opts *AdvisoryOptions) *AdvisoryStore {
	tb.Helper()
	s := NewAdvisory(openPoolAt(tb, advisoryURL(addr), "pool_max_conns=2"), opts)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// advisoryGrant takes a lock that must be free.
func advisoryGrant(t *testing.T, s *AdvisoryStore, name string, ttl time.Duration) driver.AcquireRequest {
	t.Helper()
	req := request(name, ttl)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it granted", name, res, err)
	}
	return req
}

// advisoryRefused checks that a lock is not free.
func advisoryRefused(t *testing.T, s *AdvisoryStore, name string) {
	t.Helper()
	res, err := s.Acquire(t.Context(), request(name, time.Minute))
	if err != nil || res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it refused", name, res, err)
	}
}

func advisoryRelease(t *testing.T, s *AdvisoryStore, req driver.AcquireRequest) bool {
	t.Helper()
	ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release of %q: %v", req.Name, err)
	}
	return ours
}

func advisoryRenew(t *testing.T, s *AdvisoryStore, req driver.AcquireRequest) driver.RenewOutcome {
	t.Helper()
	outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil {
		t.Fatalf("Renew of %q: %v", req.Name, err)
	}
	return outcomes[0]
}

// advisoryTakes tries until a lock is granted, and returns when it was.
func advisoryTakes(t *testing.T, s *AdvisoryStore, name string) time.Time {
	t.Helper()
	req := request(name, time.Minute)
	eventually(t, "free lock", func() bool {
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	return time.Now()
}

// psql runs a statement on a connection that is not a store's, and returns the
// first column of its row.
func psql[T any](t *testing.T, pool *pgxpool.Pool, text string, args ...any) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), text, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// advisoryWays knows the way that each store takes to its server.
type advisoryWays struct {
	sync.Mutex
	of map[driver.Store]*faultproxy.Proxy
}

func (p *advisoryWays) open(tb testing.TB, addr string, opts *AdvisoryOptions) *AdvisoryStore {
	tb.Helper()
	proxy := faultproxy.Start(tb, addr)
	s := openAdvisory(tb, proxy.Addr(), opts)
	p.Lock()
	defer p.Unlock()
	if p.of == nil {
		p.of = map[driver.Store]*faultproxy.Proxy{}
	}
	p.of[s] = proxy
	return s
}

func (p *advisoryWays) through(s driver.Store) *faultproxy.Proxy {
	p.Lock()
	defer p.Unlock()
	return p.of[s]
}

// keysOf are options that keep the locks of a test apart from those of others.
func keysOf(tb testing.TB) *AdvisoryOptions {
	return &AdvisoryOptions{Keys: SHA256Keys(tb.Name())}
}
