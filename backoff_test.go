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

// The pauses of a waiter without a notice are as the comment of Backoff describes them.
func TestPausesOfAWaiter(t *testing.T) {
	notifies := func(s *faultstore.Store) *faultstore.Store { return s.Unfair() }
	silent := func(s *faultstore.Store) *faultstore.Store { return s.Silent() }
	cases := map[string]struct {
		store    func(*faultstore.Store) *faultstore.Store
		backoff  holdfast.Backoff
		greatest time.Duration
	}{
		"a store that sends no notices":          {silent, holdfast.Backoff{}, 250 * ms},
		"a store that sends notices":             {notifies, holdfast.Backoff{}, 250 * ms},
		"Max, for a store that sends no notices": {silent, holdfast.Backoff{Max: time.Second}, time.Second},
		"Max, for a store that sends notices":    {notifies, holdfast.Backoff{Max: time.Second}, time.Second},
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
	holder := driver.Request{Name: "a", Owner: "other", Holder: "other", TTL: 100 * time.Hour}
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
