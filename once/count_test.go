package once_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/once"
)

// TestFastStore: a store whose clock is fast by a hundredth does not forget a run before its slot
// is over.
func TestFastStore(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		counted := func(d time.Duration) time.Duration { return d * 100 / 101 }
		fast := faultstore.Wrap(store)
		fast.Bend(func(v any) {
			switch v := v.(type) {
			case *driver.Request:
				v.TTL, v.Place = counted(v.TTL), counted(v.Place)
			case *[]driver.RenewRequest:
				for i := range *v {
					(*v)[i].TTL = counted((*v)[i].TTL)
				}
			case *driver.ReleaseRequest:
				v.Keep = counted(v.Keep)
			}
		})
		locks := storetest.Client(t, fast, "a")
		begin := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(begin))
		runs := 0
		for time.Since(begin) < 24*time.Hour {
			if _, err := once.Every(t.Context(), locks, "job", 24*time.Hour, nil, func(context.Context) error {
				runs++
				return nil
			}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		if runs != 1 {
			t.Errorf("%d runs in one slot", runs)
		}
	})
}

// TestWithin: a success counts from the begin of its run, a failure does not count, and Do sees it,
// too.
func TestWithin(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		other := storetest.Client(t, store, "b")
		ours := errors.New("disk full")
		result, err := once.Within(ctx, locks, "job", 23*time.Hour, nil, func(context.Context) error { return ours })
		if result.Verdict != once.Ran || err != ours {
			t.Errorf("%v, %v", result, err)
		}
		want(t, once.Ran)(once.Within(ctx, other, "job", 23*time.Hour, nil, func(context.Context) error {
			time.Sleep(2 * time.Hour)
			return nil
		}))
		time.Sleep(21*time.Hour - time.Second)
		result, err = once.Within(ctx, locks, "job", 23*time.Hour, nil, nothing)
		want(t, once.Done)(result, err)
		grain := store.Guarantees().Grain
		if left := time.Until(result.Until); left != time.Second+grain {
			t.Errorf("it counts for %v more, want 1s and the grain", left)
		}
		want(t, once.Done)(once.Do(ctx, locks, "job", nil, nothing))
		time.Sleep(time.Second + grain)
		want(t, once.Ran)(once.Within(ctx, locks, "job", time.Hour, nil, func(context.Context) error {
			time.Sleep(2 * time.Hour) // longer than it counts
			return nil
		}))
		want(t, once.Ran)(once.Do(ctx, other, "job", nil, nothing))
		want(t, once.Done)(once.Within(ctx, locks, "job", time.Hour, nil, nothing))
		for _, every := range []time.Duration{0, -1, 2 * driver.MaxTTL} {
			if _, err := once.Within(ctx, locks, "job", every, nil, nothing); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("within %v: %v", every, err)
			}
		}
	})
}

// TestMaxHold: a run that takes too long is stopped, and does not count.
func TestMaxHold(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		began := time.Now()
		result, err := once.Do(ctx, locks, "job", &once.Options{MaxHold: time.Hour}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		if took := time.Since(began); result.Verdict != once.Ran || !errors.Is(err, holdfast.ErrMaxHold) || took > time.Hour {
			t.Errorf("%v, %v after %v", result, err, took)
		}
		time.Sleep(time.Minute)
		want(t, once.Ran)(once.Do(ctx, locks, "job", nil, nothing))
	})
}

// TestAtMostOnceAfterAPause: of two replicas that have both found the work not done, since the
// first was paused for longer than its lock lasts, one at most runs it.
func TestAtMostOnceAfterAPause(t *testing.T) {
	t.Run("before the mark", func(t *testing.T) {
		storetest.Virtual(t, func(t *testing.T, store driver.Store) {
			faulty := faultstore.Wrap(store)
			o := &once.Options{AtMostOnce: true, TTL: time.Second}
			runs, calls := 0, 0
			run := func(context.Context) error { runs++; return nil }
			faulty.Set(faultstore.Renew, faultstore.Refuse)
			faulty.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				if calls++; calls == 2 { // after the job, the mark
					time.Sleep(o.TTL + store.Guarantees().Grain + time.Second)
					want(t, once.Ran)(once.Do(t.Context(), storetest.Client(t, store, "second"), "job", o, run))
				}
				apply()
				return nil
			})
			want(t, once.Done)(once.Do(t.Context(), storetest.Client(t, faulty, "first"), "job", o, run))
			if runs != 1 {
				t.Errorf("%d runs, want 1", runs)
			}
		})
	})
	t.Run("after the mark", func(t *testing.T) {
		storetest.Virtual(t, func(t *testing.T, store driver.Store) {
			faulty := faultstore.Wrap(store)
			faulty.Set(faultstore.Renew, faultstore.Refuse)
			faulty.Once(faultstore.Release, func(_ context.Context, _ faultstore.Op, apply func()) error {
				apply()
				time.Sleep(2 * time.Second)
				return nil
			})
			o := &once.Options{AtMostOnce: true, TTL: time.Second}
			result, err := once.Do(t.Context(), storetest.Client(t, faulty, "first"), "job", o, func(context.Context) error {
				t.Error("it was run after its lock was lost")
				return nil
			})
			if result.Verdict != once.Unknown || !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%v, %v; want ErrLost", result, err)
			}
			want(t, once.Done)(once.Do(t.Context(), storetest.Client(t, store, "second"), "job", o, nothing))
		})
	})
}
