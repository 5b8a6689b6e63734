package holdfast_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// How often a waiter tries whom nothing wakes, by default and as it is set: what
// is said of Backoff, no more and no less.
func TestPausesOfAWaiter(t *testing.T) {
	plain := func(s *faultstore.Store) driver.Store { return s }
	watches := func(s *faultstore.Store) driver.Store { return supervised{s} }
	deaf := func(s *faultstore.Store) driver.Store { return s.NoPush() }
	cases := map[string]struct {
		store    func(*faultstore.Store) driver.Store
		backoff  holdfast.Backoff
		greatest time.Duration
	}{
		"a store that wakes nobody":                    {deaf, holdfast.Backoff{}, 250 * ms},
		"a store that wakes":                           {plain, holdfast.Backoff{}, 2 * time.Second},
		"one that watches over it":                     {watches, holdfast.Backoff{}, 20 * time.Second},
		"Max, for a store that wakes nobody":           {deaf, holdfast.Backoff{Max: time.Second}, time.Second},
		"Max, for a store that wakes":                  {plain, holdfast.Backoff{Max: time.Second}, 2 * time.Second},
		"Max, for one that watches over it":            {watches, holdfast.Backoff{Max: time.Second}, 20 * time.Second},
		"Watched, for a store that wakes nobody":       {deaf, holdfast.Backoff{Watched: 5 * time.Second}, 250 * ms},
		"Watched, for a store that wakes":              {plain, holdfast.Backoff{Watched: 5 * time.Second}, 5 * time.Second},
		"Watched, for one that watches over it":        {watches, holdfast.Backoff{Watched: 5 * time.Second}, 5 * time.Second},
		"Watched above its default, for one that does": {watches, holdfast.Backoff{Watched: time.Minute}, time.Minute},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := faultstore.Wrap(memstore.New())
				pauses := pausesOf(t, test.store(store), store, test.backoff, 200)
				// Jitter draws from the upper half, and 200 draws come close to its ends.
				least, most := slices.Min(pauses), slices.Max(pauses)
				if g := test.greatest; least < g/2 || least > g*55/100 || most < g*95/100 || most > g {
					t.Errorf("the pauses are between %v and %v, want them between %v and %v", least, most, g/2, g)
				}
			})
		})
	}
}

// pausesOf returns n pauses between the attempts of a waiter, after those that
// grow.
func pausesOf(t *testing.T, store driver.Store, attempts *faultstore.Store, b holdfast.Backoff, n int) []time.Duration {
	t.Helper()
	holder := driver.AcquireRequest{Name: "a", Owner: "other", Holder: "other", TTL: 100 * time.Hour}
	if res, err := attempts.Store.Acquire(t.Context(), holder); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	const growing = 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var at []time.Time
	attempts.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
		mu.Lock()
		defer mu.Unlock()
		if at = append(at, time.Now()); len(at) == growing+n+1 {
			cancel()
		}
		apply()
		return nil
	})
	_, err := open(t, store, &holdfast.Config{Backoff: b}).Acquire(ctx, "a", nil)
	wantErr(t, err, holdfast.ErrHeld)
	mu.Lock()
	defer mu.Unlock()
	pauses := make([]time.Duration, n)
	for i := range pauses {
		pauses[i] = at[growing+i+1].Sub(at[growing+i])
	}
	return pauses
}
