package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// slow is a fault that delays requests by before, and their replies by after.
func slow(before, after func() time.Duration) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		time.Sleep(before())
		apply()
		time.Sleep(after())
		return nil
	}
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
func upTo(d time.Duration) func() time.Duration   { return func() time.Duration { return rand.N(d) } }

// TestEdge: an answer that comes just in time lets the call pass, and the next one a window later,
// no sooner. An answer that comes later does not.
func TestEdge(t *testing.T) {
	const window = time.Second
	const grace = window / 100 // the acquisition takes no time here
	for _, took := range []time.Duration{grace, grace + 1, 3 * grace / 2, 2 * grace, 2*grace + 1} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.Wrap(memstore.New())
				locks, other := storetest.Client(t, store, ""), storetest.Client(t, store.Store, "")
				store.Once(faultstore.Release, slow(always(0), always(took)))
				err := ratelimit.New(locks, 1, window).Take(t.Context(), "key")
				passed := time.Now()
				if took > grace {
					var limited *ratelimit.LimitError
					if !errors.As(err, &limited) || limited.RetryAfter != window+grace-took {
						t.Errorf("%v, %+v; want the rest of the window and the grace", err, limited)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(window - 1)
				if err := ratelimit.New(other, 1, window).Take(t.Context(), "key"); !errors.Is(err, ratelimit.ErrLimited) {
					t.Errorf("%v after a call that passed: %v", time.Since(passed), err)
				}
				time.Sleep(time.Nanosecond)
				if err := ratelimit.New(other, 1, window).Take(t.Context(), "key"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestLateAnswer uses up one place, however many there are, and the next call passes.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.Wrap(memstore.New())
		limit := ratelimit.New(storetest.Client(t, store, ""), 10, time.Second)
		const took = 700 * time.Millisecond
		store.Set(faultstore.Release, slow(always(0), always(took)))
		var limited *ratelimit.LimitError
		if err := limit.Take(t.Context(), "key"); !errors.As(err, &limited) || limited.RetryAfter != took {
			t.Errorf("%v, %+v; want to try again after %v", err, limited, took)
		}
		store.Set(faultstore.Release, nil)
		for i := range 9 {
			if err := limit.Take(t.Context(), "key"); err != nil {
				t.Errorf("call %d after a late one: %v", i+1, err)
			}
		}
		if err := limit.Take(t.Context(), "key"); !errors.Is(err, ratelimit.ErrLimited) {
			t.Errorf("with all places used: %v", err)
		}
		time.Sleep(1100 * time.Millisecond) // what one late answer costs is soon over
		for range 10 {
			if err := limit.Take(t.Context(), "key"); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSlidingWindow: of many more calls by several replicas, N pass in any window, never more, and
// few less: a place stays taken for a little longer than the window. They pass also on a store whose
// releases are always much slower than its acquisitions.
func TestSlidingWindow(t *testing.T) {
	for _, test := range []struct {
		n                        int
		window, acquire, release time.Duration
		share                    float64 // of the calls of N a window that pass at least
	}{
		{n: 1, window: 100 * time.Millisecond, share: 0.98},
		{n: 2, window: 100 * time.Millisecond, share: 0.98},
		{n: 3, window: 100 * time.Millisecond, share: 0.98},
		{n: 7, window: 100 * time.Millisecond, share: 0.98},
		{n: 1, window: time.Second, acquire: 2 * time.Millisecond, release: 50 * time.Millisecond, share: 0.72},
		{n: 10, window: time.Second, acquire: 2 * time.Millisecond, release: 50 * time.Millisecond, share: 0.72},
		{n: 1, window: time.Second, acquire: 2 * time.Millisecond, release: 400 * time.Millisecond, share: 0.42},
		{n: 10, window: time.Second, acquire: 2 * time.Millisecond, release: 400 * time.Millisecond, share: 0.42},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := faultstore.Wrap(memstore.New())
			store.Set(faultstore.Acquire, slow(always(test.acquire/2), always(test.acquire/2)))
			store.Set(faultstore.Release, slow(always(0), always(test.release)))
			var callers []*ratelimit.Limiter
			for range 3 {
				limit := ratelimit.New(storetest.Client(t, store, ""), test.n, test.window)
				callers = append(callers, limit, limit)
			}
			length := 40 * test.window
			passed := callBy(t, callers, length, test.window/50, func(limit *ratelimit.Limiter) error {
				return limit.Take(t.Context(), "key")
			})
			apart(t, passed, test.n, test.window)
			most := float64(test.n) * length.Seconds() / test.window.Seconds()
			if got := float64(len(passed)); got < most*test.share || got >= most+float64(test.n) {
				t.Errorf("%+v: %.0f passed, %.0f are allowed", test, got, most)
			}
		})
	}
}

// TestLatency: whatever the network does, no window sees more than n calls pass; and calls do pass,
// also where a request takes longer than the window.
func TestLatency(t *testing.T) {
	for _, window := range []time.Duration{20 * time.Millisecond, time.Second, 10 * time.Second} {
		for name, latency := range map[string]time.Duration{"near": 2 * time.Millisecond, "far": 300 * time.Millisecond, "bad": 2 * time.Second} {
			t.Run(window.String()+"/"+name, func(t *testing.T) {
				for _, n := range []int{1, 3} {
					synctest.Test(t, func(t *testing.T) {
						offerBy(t, latency, n, window, 200*(window+6*latency))
						time.Sleep(time.Minute) // nothing is under way any more
					})
				}
			})
		}
	}
}

// offerBy calls by six callers over a network of that latency, on which one in fifty answers is
// lost.
func offerBy(t *testing.T, latency time.Duration, n int, window, length time.Duration) {
	store := faultstore.Wrap(memstore.New())
	delay := slow(upTo(latency), upTo(latency))
	for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Release} {
		store.Set(op, func(ctx context.Context, op faultstore.Op, apply func()) error {
			err := delay(ctx, op, apply)
			if rand.N(50) == 0 {
				return faultstore.ErrReplyLost
			}
			return err
		})
	}
	var limits []*ratelimit.Limiter
	for range 6 {
		limits = append(limits, ratelimit.New(storetest.Client(t, store, ""), n, window))
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	passed := callBy(t, limits, length, 0, func(limit *ratelimit.Limiter) error {
		err := limit.Wait(ctx, "key")
		if ctx.Err() != nil || errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrLost) {
			time.Sleep(10 * time.Millisecond)
			return ratelimit.ErrLimited
		}
		return err
	})
	apart(t, passed, n, window)
	// A place is taken for a window and what the requests about it take.
	most := float64(n) * float64(length) / float64(window)
	least := float64(n) * float64(length) / float64(window+12*latency) / 3
	if got := float64(len(passed)); got < least || got > most+float64(n) {
		t.Errorf("%d passed; want %.0f to %.0f", len(passed), least, most)
	}
}
