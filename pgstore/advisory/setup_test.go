//go:build unix

package advisory

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// serverURL is that of the database at an address.
func serverURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// open returns a store that is closed with the test.
func open(tb testing.TB, addr string, opts *Options) *Store {
	tb.Helper()
	s := New(pgtest.OpenPool(tb, serverURL(addr), "pool_max_conns=2"), opts)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// keysOf are options that keep the locks of a test apart from those of others.
func keysOf(tb testing.TB) *Options {
	return &Options{Keys: SHA256Keys(tb.Name())}
}

// grant takes a lock that must be free.
func grant(t *testing.T, s *Store, name string, ttl time.Duration) driver.Request {
	t.Helper()
	req := pgtest.Request(name, ttl)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it granted", name, res, err)
	}
	return req
}

// queue makes another owner wait for a name that is held.
func queue(t *testing.T, s *Store, name string) driver.Request {
	t.Helper()
	req := pgtest.Request(name, time.Minute)
	req.Place = time.Hour
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Waiting {
		t.Fatalf("Acquire of %q by a waiter: %+v, %v, want it waiting", name, res, err)
	}
	return req
}

// refused checks that a lock is not free.
func refused(t *testing.T, s *Store, name string) {
	t.Helper()
	res, err := s.Acquire(t.Context(), pgtest.Request(name, time.Minute))
	if err != nil || res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it refused", name, res, err)
	}
}

// takes tries until a lock is granted.
func takes(t *testing.T, s *Store, name string) (req driver.Request) {
	t.Helper()
	pgtest.Eventually(t, "free lock", func() bool {
		req = pgtest.Request(name, time.Minute)
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	return req
}

func release(t *testing.T, s *Store, req driver.Request) bool {
	t.Helper()
	ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release of %q: %v", req.Name, err)
	}
	return ended
}

func stateOf(t *testing.T, s *Store, req driver.Request) driver.State {
	t.Helper()
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
	if err != nil {
		t.Fatalf("Renew of %q: %v", req.Name, err)
	}
	return entries[0].State
}

// noticesOf returns a channel that is signaled by the notices of an owner.
func noticesOf(t *testing.T, s *Store, owner string) <-chan struct{} {
	told := make(chan struct{}, 1)
	t.Cleanup(s.Notify(func(_, to string, _ int64) {
		if to == owner {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}))
	return told
}

// locksOn returns the locks of all programs on the key of a name.
func locksOn(t *testing.T, s *Store, name string) []Lock {
	t.Helper()
	key, _ := s.options.Keys(name)
	locks, err := s.Locks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(locks, func(l Lock) bool { return l.Key != key })
}
