package memstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
		name := fmt.Sprintf("conformance of %s", tb.Name())
		first := Named(name) // keeps the space while the suite closes its stores
		tb.Cleanup(func() { first.Close() })
		return drivertest.Backing{
			Open: func(testing.TB) driver.Store { return Named(name) },
			Restart: func(testing.TB) {
				named.Lock()
				delete(named.spaces, name)
				named.Unlock()
				first = Named(name)
			},
		}
	}})
}

// Holds that ran out and are never asked for again do not fill the memory.
func TestExpiredHoldsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		for i := range 100_000 {
			req := driver.AcquireRequest{Name: fmt.Sprint(i), Owner: "o", Holder: "h", TTL: time.Second}
			if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(s.space.holds); n > 4000 {
			t.Errorf("%d holds are kept, though 1000 are in force at a time", n)
		}
	})
}

func TestNamedStoresShareAndEnd(t *testing.T) {
	ctx := context.Background()
	a, b, other := Named("x"), Named("x"), Named("y")
	req := driver.AcquireRequest{Name: "n", Owner: "o", Holder: "h", TTL: time.Minute}
	if res, err := a.Acquire(ctx, req); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	if _, held, _ := b.Lookup(ctx, "n"); !held {
		t.Error("two stores of one name do not share")
	}
	if _, held, _ := other.Lookup(ctx, "n"); held {
		t.Error("stores of two names share")
	}
	a.Close()
	if _, held, _ := b.Lookup(ctx, "n"); !held {
		t.Error("closing one store took the other's holds")
	}
	b.Close()
	again := Named("x")
	defer again.Close()
	if _, held, _ := again.Lookup(ctx, "n"); held {
		t.Error("a hold outlived the last store of its name")
	}
	other.Close()
	if len(named.spaces) != 1 {
		t.Errorf("%d named spaces are left", len(named.spaces))
	}
}
