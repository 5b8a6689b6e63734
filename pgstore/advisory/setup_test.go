//go:build unix

package advisory

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
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
	return &Options{Keys: Keys{Namespace: tb.Name()}}
}

// Verbs, as tests use them.
var (
	refused = pgtest.Refuse
	release = pgtest.Release
	stateOf = pgtest.State
)

// grant takes a lock that must be free.
func grant(t *testing.T, s *Store, name string, ttl time.Duration) driver.Request {
	t.Helper()
	req, _ := pgtest.Grant(t, s, name, ttl)
	return req
}

// queue makes another owner wait for a name that is held.
func queue(t *testing.T, s *Store, name string) driver.Request {
	t.Helper()
	return pgtest.Wait(t, s, name, time.Minute)
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

// fails checks the errors of these verbs.
func fails(t *testing.T, s *Store, target error, says string, verbs ...string) {
	t.Helper()
	storecheck.Fails(t, s, pgtest.Request("name", time.Minute), target, says, verbs...)
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
	key, _ := s.options.Keys.of(name)
	locks, err := s.Locks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(locks, func(l Lock) bool { return l.Key != key })
}
