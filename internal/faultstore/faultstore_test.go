package faultstore_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store without faults keeps the contract, also if it claims less than the one that it wraps.
func TestConformance(t *testing.T) {
	for name, wrap := range map[string]func(driver.Store) driver.Store{
		"whole":  func(s driver.Store) driver.Store { return faultstore.Wrap(s) },
		"unfair": func(s driver.Store) driver.Store { return oneProcess{faultstore.Wrap(s).Unfair()} },
		"silent": func(s driver.Store) driver.Store { return faultstore.Wrap(s).Silent() },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
				first := memstore.Named(tb.Name()) // keeps the space while the suite closes its stores
				tb.Cleanup(func() { first.Close() })
				return drivertest.Backing{Open: func(testing.TB) driver.Store { return wrap(memstore.Named(tb.Name())) }}
			}})
		})
	}
}

// oneProcess is a store that is not Fair, whose Ask notices are of what happens through it.
type oneProcess struct{ *faultstore.Store }

func (s oneProcess) Guarantees() driver.Guarantees {
	guarantees := s.Store.Guarantees()
	guarantees.Scope = driver.ScopeProcess
	return guarantees
}

// A fault of notices loses them, doubles them or delays them, and none comes after stop.
func TestNotices(t *testing.T) {
	for _, test := range []struct {
		name        string
		fault       faultstore.Fault
		soon, later int32
	}{
		{"none", nil, 1, 1},
		{"drop", faultstore.Drop, 0, 0},
		{"double", faultstore.Double, 2, 2},
		{"delay", faultstore.Delay(time.Second), 0, 1},
		{"delay until after stop", faultstore.Delay(time.Minute), 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := faultstore.Wrap(memstore.New())
			defer store.Close()
			store.Set(faultstore.Notice, test.fault)
			var count atomic.Int32
			stop := store.Notify(func(driver.Notice) { count.Add(1) })
			for _, owner := range []string{"holder", "waiter"} {
				req := driver.AcquireRequest{Name: "name", Owner: owner, TTL: time.Hour, Queue: time.Hour}
				if _, err := store.Acquire(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := store.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "holder"}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := count.Load(); got != test.soon {
				t.Errorf("%s: %d notices at once, want %d", test.name, got, test.soon)
			}
			time.Sleep(2 * time.Second)
			stop()
			time.Sleep(time.Hour)
			if got := count.Load(); got != test.later || store.Calls(faultstore.Notice) != 1 {
				t.Errorf("%s: %d notices in all, want %d", test.name, got, test.later)
			}
		})
	}
}
