package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// callBy calls by each Limiter again and again, with a pause between, and returns when calls
// passed. An error of call other than ErrLimited fails the test.
func callBy(
	t *testing.T, limits []*ratelimit.Limiter, length, pause time.Duration, call func(*ratelimit.Limiter) error,
) (passed []time.Time) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, limit := range limits {
		group.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for began := time.Now(); time.Since(began) < length; time.Sleep(pause) {
				if err := call(limit); err == nil {
					mu.Lock()
					passed = append(passed, time.Now())
					mu.Unlock()
				} else if !errors.Is(err, ratelimit.ErrLimited) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	return passed
}

// apart checks that of calls which passed at these moments no window has more than n.
func apart(t *testing.T, passed []time.Time, n int, window time.Duration) {
	t.Helper()
	slices.SortFunc(passed, time.Time.Compare)
	for i := n; i < len(passed); i++ {
		if gap := passed[i].Sub(passed[i-n]); gap < window {
			t.Errorf("%d calls passed within %v, the window is %v", n+1, gap, window)
		}
	}
}

// TestKeysAreApart: keys do not share places, and RetryAfter is when a place is free.
func TestKeysAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, locks := t.Context(), storetest.Client(t, memstore.New(), "")
		limit := ratelimit.New(locks, 2, time.Minute)
		for range 2 {
			for _, key := range []string{"a", "b"} {
				if err := limit.Take(ctx, key); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		var limited *ratelimit.LimitError
		if err := limit.Take(ctx, "a"); !errors.As(err, &limited) || limited.RetryAfter != 40600*time.Millisecond || limited.Seconds() != "41" || limited.Key != "a" {
			t.Errorf("%+v, %v; want a wait of 40.6s", limited, err)
		}
		time.Sleep(limited.RetryAfter)
		if err := limit.Take(ctx, "a"); err != nil {
			t.Error(err)
		}
	})
}

// TestWait: a wait ends with ctx.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := ratelimit.New(storetest.Client(t, memstore.New(), ""), 1, time.Second)
		if err := limit.Wait(t.Context(), "key"); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := limit.Wait(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ratelimit.ErrLimited) {
			t.Errorf("a wait cut short: %v", err)
		}
	})
}

// TestUnconfirmedRelease: a call whose place may not stay taken for long enough does not pass.
func TestUnconfirmedRelease(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, faulty := t.Context(), faultstore.Wrap(store)
		limit := ratelimit.New(storetest.Client(t, faulty, "a"), 1, time.Minute)
		faulty.Set(faultstore.Release, faultstore.Refuse)
		if err := limit.Take(ctx, "key"); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a release that is refused: %v", err)
		}
		faulty.Set(faultstore.Release, nil)
		if err := limit.Wait(ctx, "key"); err != nil {
			t.Error(err)
		}
		broken := func(ctx context.Context, _ faultstore.Op, apply func()) error {
			if _, err := store.Break(ctx, "other", 0); err != nil {
				t.Error(err)
			}
			apply()
			return nil
		}
		faulty.Once(faultstore.Release, broken)
		if err := limit.Take(ctx, "other"); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("a place that is broken: %v", err)
		}
		if err := limit.Take(ctx, "other"); err != nil {
			t.Errorf("the place is free: %v", err)
		}
	})
}

// TestErrors: what is out of bounds, a store that cannot be asked, and one that cannot keep names
// are not the limit. Nothing is taken then.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := faultstore.Wrap(memstore.New())
		refuses.Set(faultstore.Acquire, faultstore.Refuse)
		forgetful := faultstore.Wrap(memstore.New())
		forgetful.Bend(faultstore.Bent(func(can *driver.Guarantees) { can.Keep = false }))
		locks, forgets := storetest.Client(t, memstore.New(), ""), storetest.Client(t, forgetful, "")
		for i, test := range []struct {
			limit *ratelimit.Limiter
			want  error
		}{
			{ratelimit.New(nil, 1, time.Minute), holdfast.ErrInvalid},
			{ratelimit.New(locks, 0, time.Minute), holdfast.ErrInvalid},
			{ratelimit.New(locks, ratelimit.MaxCalls+1, time.Minute), holdfast.ErrInvalid},
			{ratelimit.New(locks, 1, time.Millisecond), holdfast.ErrInvalid},
			{ratelimit.New(locks, 1, 2*driver.MaxTTL), holdfast.ErrInvalid},
			{ratelimit.New(storetest.Client(t, refuses, ""), 2, time.Minute), holdfast.ErrUnavailable},
			{ratelimit.New(forgets, 1, time.Minute), holdfast.ErrUnsupported},
			{ratelimit.New(forgets, 1, time.Minute), holdfast.ErrUnsupported},
		} {
			if err := test.limit.Take(t.Context(), "key"); !errors.Is(err, test.want) || errors.Is(err, ratelimit.ErrLimited) {
				t.Errorf("%d: %v, want %v", i, err, test.want)
			}
		}
		if left := append(locks.Locks(), forgets.Locks()...); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}
