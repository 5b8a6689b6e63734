//go:build unix

package advisory

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// The suite's faults and severed connections are not offered: it expects holds
// to outlive the connection. Nor is silence: what the store knows it answers
// without the server. What becomes of these is in advisory_fault_test.go.
func TestConformance(t *testing.T) {
	for _, name := range []string{"tokens", "plain"} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Walk: name == "plain" && os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
				server := pgtest.Postgres()
				if strings.Contains(tb.Name(), "restart") {
					server = servers.StartPostgres(tb)
				}
				var ways ways
				var stores siblings
				opts := keysOf(tb)
				if name == "tokens" {
					key, _ := SHA256Keys("")(tb.Name())
					opts.TokenSequence = "tokens " + key.String()
				}
				if err := open(tb, server.Addr, opts).Migrate(tb.Context()); err != nil {
					tb.Fatal(err)
				}
				return drivertest.Backing{
					Restart: func(testing.TB) { server.Restart() },
					Open:    func(tb testing.TB) driver.Store { return stores.add(ways.open(tb, server.Addr, opts)) },
					Crash: func(_ testing.TB, s driver.Store) {
						ways.through(s.(*sibling).Store).Reset()
					},
				}
			}})
		})
	}
}

// A sibling is a store that knows the other stores of its place, for the two
// things in which advisory locks differ from what the suite expects. A hold lives
// in the session of one store, and the server stores nothing of its owner: a
// repetition of a shared request goes to the store that has the hold. When a TTL
// has run out, it is the holder's store that gives the lock back, as soon as its
// timer has fired, which may be late on a busy machine. The suite expects the
// lock to be free within milliseconds: the sibling waits for a store whose hold
// is over.
type sibling struct {
	*Store
	family *siblings
}

type siblings struct {
	sync.Mutex
	all []*Store
}

func (f *siblings) add(s *Store) *sibling {
	f.Lock()
	defer f.Unlock()
	f.all = append(f.all, s)
	return &sibling{s, f}
}

// late reports whether a store still has a hold of the name whose time is over.
func (f *siblings) late(name string) bool {
	f.Lock()
	defer f.Unlock()
	for _, s := range f.all {
		key, _ := s.keys(name)
		s.mu.Lock()
		over := false
		for _, c := range s.leases[key] {
			over = over || c.state != leaseAcquiring && !time.Now().Before(c.until)
		}
		s.mu.Unlock()
		if over {
			return true
		}
	}
	return false
}

func (s *sibling) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	for {
		late := s.family.late(req.Name)
		res, err := s.Store.Acquire(ctx, req)
		if err != nil || res.Granted || !late {
			return res, err
		}
	}
}
