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
				namedTables.Lock()
				delete(namedTables.byName, name)
				namedTables.Unlock()
				first = Named(name)
			},
		}
	}})
}

// A store with a grain satisfies the contract, too.
func TestConformanceCoarse(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(testing.TB) drivertest.Backing {
		first := NewCoarse(3 * time.Second)
		return drivertest.Backing{Open: func(testing.TB) driver.Store {
			if first.closed.Load() {
				first = NewCoarse(3 * time.Second)
			}
			return first
		}}
	}})
}

// Holds that ran out and are never asked for again do not fill the memory.
func TestExpiredHoldsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		for i := range 100_000 {
			req := driver.Request{Name: fmt.Sprint(i), Owner: "o", Holder: "h", TTL: time.Second}
			if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(s.table.names); n > 4000 {
			t.Errorf("%d holds are kept, though 1000 are in force at a time", n)
		}
	})
}

func TestNamedStoresShareAndEnd(t *testing.T) {
	ctx := context.Background()
	a, b, other := Named("x"), Named("x"), Named("y")
	req := driver.Request{Name: "n", Owner: "o", Holder: "h", TTL: time.Minute}
	if res, err := a.Acquire(ctx, req); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	if held, _ := b.Lookup(ctx, "n"); len(held) == 0 {
		t.Error("two stores of one name do not share")
	}
	if held, _ := other.Lookup(ctx, "n"); len(held) > 0 {
		t.Error("stores of two names share")
	}
	a.Close()
	if held, _ := b.Lookup(ctx, "n"); len(held) == 0 {
		t.Error("closing one store took the other's holds")
	}
	b.Close()
	again := Named("x")
	defer again.Close()
	if held, _ := again.Lookup(ctx, "n"); len(held) > 0 {
		t.Error("a hold outlived the last store of its name")
	}
	other.Close()
	if len(namedTables.byName) != 1 {
		t.Errorf("%d named spaces are left", len(namedTables.byName))
	}
}

// What one name is asked for changes nothing for others: many that are taken at
// once above one floor are granted exactly the floor.
func TestFloorsAreOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		const names, lead = 1000, int64(time.Second / time.Microsecond)
		clock := time.Now().UnixMicro()
		for i := range names {
			if token := take(t, s, fmt.Sprint(i), clock+lead); token != clock+lead {
				t.Fatalf("name %d is granted %d, want the floor %d", i, token, clock+lead)
			}
		}
		if token := take(t, s, "another", 0); token >= clock+lead {
			t.Errorf("a name without a floor is granted %d, above the floors of others", token)
		}
		if token := take(t, s, "0", 0); token != clock+lead+1 {
			t.Errorf("a name that had %d is granted %d, want one more", clock+lead, token)
		}
	})
}

// Names are remembered only until the counter has passed their tokens; without
// floors none is.
func TestTokensAreForgottenWhenPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		for i := range 1000 {
			take(t, s, fmt.Sprint(i), 0)
		}
		if n := len(s.table.names); n > 64 {
			t.Errorf("%d names are remembered without a floor", n)
		}
		last := map[string]int64{}
		for i := range 100_000 {
			name := fmt.Sprint(i % 30_000)
			token := take(t, s, name, time.Now().Add(time.Second).UnixMicro())
			if token <= last[name] {
				t.Fatalf("name %s is granted %d after %d", name, token, last[name])
			}
			last[name] = token
			time.Sleep(time.Millisecond)
		}
		if n := len(s.table.names); n > 4000 {
			t.Errorf("%d names are remembered, though 1000 are ahead at a time", n)
		}
	})
}

// take takes a name above a floor, gives it back and returns the token.
func take(t *testing.T, s *Store, name string, floor int64) int64 {
	t.Helper()
	res, err := s.Acquire(t.Context(), driver.Request{Name: name, Owner: "o", Holder: "h", TTL: time.Minute, Floor: floor})
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q above %d: %+v, %v", name, floor, res, err)
	}
	if ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "o"}); err != nil || !ours {
		t.Fatalf("Release of %q: %v, %v", name, ours, err)
	}
	return res.Token
}
