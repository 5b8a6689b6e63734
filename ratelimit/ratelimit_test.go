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
	"github.com/holdfast-go/holdfast/internal/recipetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// TestOfferedThousandASecond: of 1000 calls a second for 10 s by three replicas,
// one in 100 ms passes: 100 in all.
func TestOfferedThousandASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed, window := offer(t, 1, 100*time.Millisecond, 10*time.Second)
		if n := len(passed); n < 99 || n > 101 {
			t.Errorf("%d passed, want 100", n)
		}
		sliding(t, passed, passed, 1, window)
	})
}

// TestSlidingWindow: of 1000 calls a second, N pass in any window, never more.
func TestSlidingWindow(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		synctest.Test(t, func(t *testing.T) {
			passed, window := offer(t, n, 100*time.Millisecond, 10*time.Second)
			if got, want := len(passed), 100*n; got < want*99/100 || got > want+n {
				t.Errorf("%d passed, want %d", got, want)
			}
			sliding(t, passed, passed, n, window)
		})
	}
}

// offer makes 1000 calls a second, by three replicas, and returns when calls
// passed.
func offer(t *testing.T, n int, window, length time.Duration) ([]time.Time, time.Duration) {
	store := memstore.New()
	defer store.Close()
	var mu sync.Mutex
	var passed []time.Time
	var group sync.WaitGroup
	for i := range 3 {
		locks := holdfast.New(store, nil)
		defer locks.Close()
		limit := ratelimit.New(locks, n, window)
		group.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for began := time.Now(); time.Since(began) < length; time.Sleep(3 * time.Millisecond) {
				err := limit.Take(t.Context(), "key")
				if err == nil {
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
	return passed, window
}

// sliding checks that never more than n calls passed in a window. Each passed at
// some moment between its begin and its end, in whichever order.
func sliding(t *testing.T, begins, ends []time.Time, n int, window time.Duration) {
	t.Helper()
	begins, ends = slices.Clone(begins), slices.Clone(ends)
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, time.Time.Compare)
	for i := n; i < len(ends); i++ {
		if gap := ends[i].Sub(begins[i-n]); gap < window {
			t.Errorf("%d calls passed within %v", n+1, gap)
		}
	}
}

// TestEachStore: on every store, replicas that call all the time do not pass more
// often than they may.
func TestEachStore(t *testing.T) {
	recipetest.Each(t, func(t *testing.T, s *recipetest.Store) {
		const calls, window = 3, 250 * time.Millisecond
		var mu sync.Mutex
		var begins, ends []time.Time
		var group sync.WaitGroup
		for _, locks := range s.Replicas(t, 3) {
			limit := ratelimit.New(locks, calls, window)
			group.Go(func() {
				for passed := 0; passed < 5; {
					began := time.Now()
					err := limit.Take(t.Context(), "key")
					ended := time.Now()
					var limited *ratelimit.LimitError
					switch {
					case err == nil:
						passed++
						mu.Lock()
						begins, ends = append(begins, began), append(ends, ended)
						mu.Unlock()
					case !errors.As(err, &limited) || limited.RetryAfter > window+time.Second:
						t.Error(err)
						return
					default:
						time.Sleep(5 * time.Millisecond) // leaves others some of the processor
					}
				}
			})
		}
		group.Wait()
		sliding(t, begins, ends, calls, window)
	})
}

// TestKeysAreApart, and RetryAfter says when a place is free.
func TestKeysAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memstore.New()
		defer store.Close()
		locks := holdfast.New(store, nil)
		defer locks.Close()
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
		if err := limit.Take(ctx, "a"); !errors.As(err, &limited) || limited.RetryAfter != 40*time.Second || limited.Seconds() != "40" || limited.Key != "a" {
			t.Errorf("%+v, %v; want a wait of 40s", limited, err)
		}
		time.Sleep(limited.RetryAfter)
		if err := limit.Take(ctx, "a"); err != nil {
			t.Error(err)
		}
	})
}

// TestWait serves all who wait, no faster than allowed, and gives up with ctx.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		defer store.Close()
		locks := holdfast.New(store, nil)
		defer locks.Close()
		limit := ratelimit.New(locks, 2, time.Second)
		var mu sync.Mutex
		var passed []time.Time
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if err := limit.Wait(t.Context(), "key"); err != nil {
					t.Error(err)
				}
				mu.Lock()
				passed = append(passed, time.Now())
				mu.Unlock()
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		time.Sleep(time.Millisecond)
		if err := limit.Wait(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ratelimit.ErrLimited) {
			t.Errorf("a wait cut short: %v", err)
		}
		group.Wait()
		sliding(t, passed, passed, 2, time.Second)
	})
}

// TestUnconfirmedRelease: a place whose release the store does not confirm stays
// taken all the same.
func TestUnconfirmedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), faultstore.Wrap(memstore.New())
		locks := holdfast.New(store, nil)
		other := holdfast.New(store.Store, nil)
		defer other.Close()
		limit := ratelimit.New(locks, 1, time.Minute)
		store.Set(faultstore.Release, faultstore.Refuse)
		if err := limit.Take(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		locks.Close() // nobody tries on
		if err := ratelimit.New(other, 1, time.Minute).Wait(ctx, "key"); err != nil {
			t.Fatal(err)
		}
		if gap := time.Since(began); gap < 50*time.Second {
			t.Errorf("the next passed after %v", gap)
		}
	})
}

// TestErrors: what is out of bounds, and a store that cannot be asked, are not
// the limit.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), faultstore.Wrap(memstore.New())
		locks := holdfast.New(store, nil)
		defer locks.Close()
		for _, limit := range []*ratelimit.Limiter{
			ratelimit.New(locks, 0, time.Minute),
			ratelimit.New(locks, ratelimit.MaxCalls+1, time.Minute),
			ratelimit.New(locks, 1, time.Millisecond),
			ratelimit.New(locks, 1, 2*driver.MaxTTL),
		} {
			if err := limit.Take(ctx, "key"); !errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, ratelimit.ErrLimited) {
				t.Errorf("%+v: %v", limit, err)
			}
		}
		store.Set(faultstore.Acquire, faultstore.Refuse)
		err := ratelimit.New(locks, 2, time.Minute).Take(ctx, "key")
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, ratelimit.ErrLimited) {
			t.Errorf("a store that refuses: %v", err)
		}
	})
}
