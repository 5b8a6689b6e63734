package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/once"
)

func nothing(context.Context) error { return nil }

// want checks that a call has a verdict and no error.
func want(t *testing.T, verdict once.Verdict) func(once.Result, error) {
	return func(got once.Result, err error) {
		t.Helper()
		if err != nil || got.Verdict != verdict {
			t.Errorf("%v, %v; want %v", got, err, verdict)
		}
	}
}

// TestFailureIsRepeated, and a success is not until it is forgotten.
func TestFailureIsRepeated(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		o := &once.Options{Remember: 10 * time.Minute}
		ours := errors.New("disk full")
		result, err := once.Do(ctx, locks, "job", o, func(context.Context) error { return ours })
		if result.Verdict != once.Ran || err != ours {
			t.Errorf("%v, %v", result, err)
		}
		want(t, once.Ran)(once.Do(ctx, locks, "job", o, nothing))
		time.Sleep(9 * time.Minute)
		result, err = once.Do(ctx, locks, "job", o, nothing)
		want(t, once.Done)(result, err)
		grain := store.Guarantees().Grain
		if left := time.Until(result.Until); left != time.Minute+grain {
			t.Errorf("it counts as done for %v more, want 1m and the grain", left)
		}
		time.Sleep(time.Minute + grain)
		want(t, once.Ran)(once.Do(ctx, locks, "job", o, nothing))
	})
}

// TestAtMostOnce: neither a failure nor a panic is repeated.
func TestAtMostOnce(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		o := &once.Options{AtMostOnce: true}
		ours := errors.New("disk full")
		result, err := once.Do(ctx, locks, "job", o, func(context.Context) error { return ours })
		if result.Verdict != once.Ran || err != ours {
			t.Errorf("%v, %v", result, err)
		}
		want(t, once.Done)(once.Do(ctx, locks, "job", o, nothing))

		func() {
			defer func() { _ = recover() }()
			_, _ = once.Do(ctx, locks, "other", o, func(context.Context) error { panic("boom") })
		}()
		want(t, once.Done)(once.Do(ctx, locks, "other", o, nothing))
		if _, err := locks.Lookup(ctx, "other"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("the lock after a panic: %v", err)
		}
	})
}

// TestCrashedRunIsRepeated: a run whose process has died is taken over by a waiter, unless it is to
// be run at most once.
func TestCrashedRunIsRepeated(t *testing.T) {
	for verdict, o := range map[once.Verdict]once.Options{once.Ran: {}, once.Done: {AtMostOnce: true}} {
		storetest.Virtual(t, func(t *testing.T, store driver.Store) {
			dies := faultstore.Wrap(store)
			o.TTL, o.Wait = time.Second, time.Minute
			go once.Do(t.Context(), storetest.Client(t, dies, "first"), "job", &o, func(ctx context.Context) error {
				for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
					dies.Set(op, faultstore.Refuse)
				}
				<-ctx.Done()
				return nil
			})
			synctest.Wait()
			want(t, verdict)(once.Do(t.Context(), storetest.Client(t, store, "second"), "job", &o, nothing))
		})
	}
}

// TestBusy: a call while the job runs returns the holder, or waits: then it returns Done, or runs
// the job if that has failed.
func TestBusy(t *testing.T) {
	for verdict, ends := range map[once.Verdict]error{once.Done: nil, once.Ran: errors.New("failed")} {
		storetest.Virtual(t, func(t *testing.T, store driver.Store) {
			ctx := t.Context()
			first, second := storetest.Client(t, store, "first"), storetest.Client(t, store, "second")
			go once.Do(ctx, first, "job", nil, func(context.Context) error {
				time.Sleep(time.Hour)
				return ends
			})
			synctest.Wait()
			for _, locks := range []*holdfast.Client{first, second} {
				result, err := once.Do(ctx, locks, "job", nil, nothing)
				want(t, once.Busy)(result, err)
				if result.Holder != "first" || !result.Until.After(time.Now()) {
					t.Errorf("%+v", result)
				}
			}
			want(t, once.Busy)(once.Do(ctx, second, "job", &once.Options{Wait: time.Minute}, nothing))

			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			result, err := once.Do(limited, second, "job", &once.Options{Wait: time.Hour}, nothing)
			if !errors.Is(err, context.DeadlineExceeded) || result.Verdict != once.Unknown {
				t.Errorf("%v, %v; want the end of the context", result, err)
			}
			want(t, verdict)(once.Do(ctx, second, "job", &once.Options{Wait: 2 * time.Hour}, nothing))
		})
	}
}

// TestLongRunsDoNotOverlap: a run that goes on into the next period keeps the runs of that one from
// beginning, and delays no period after it.
func TestLongRunsDoNotOverlap(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx := t.Context()
		locks, other := storetest.Client(t, store, "a"), storetest.Client(t, store, "b")
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		go once.Every(ctx, locks, "job", time.Hour, nil, func(context.Context) error {
			time.Sleep(90 * time.Minute)
			return nil
		})
		time.Sleep(time.Hour)
		want(t, once.Busy)(once.Every(ctx, other, "job", time.Hour, nil, nothing))

		began := time.Now()
		want(t, once.Ran)(once.Every(ctx, other, "job", time.Hour, &once.Options{Wait: time.Hour}, nothing))
		if waited := time.Since(began); waited != 30*time.Minute {
			t.Errorf("it ran after %v, want 30m", waited)
		}
		time.Sleep(30 * time.Minute)
		want(t, once.Ran)(once.Every(ctx, locks, "job", time.Hour, nil, nothing))
	})
}

// TestMissedSlot: a call that waits for a job until the slot is over does not run it late, when its
// mark may be gone.
func TestMissedSlot(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx := t.Context()
		locks, other := storetest.Client(t, store, "a"), storetest.Client(t, store, "b")
		slot := once.Slot{Start: time.Now(), End: time.Now().Add(time.Minute)}
		lock, err := locks.Acquire(ctx, "job", nil)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { lock.Release() })
		want(t, once.Missed)(once.In(ctx, other, "job", slot, &once.Options{Wait: 2 * time.Hour}, nothing))
	})
}

// TestContextOfTheCaller ends the work, and success counts all the same.
func TestContextOfTheCaller(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		locks := storetest.Client(t, store, "a")
		want(t, once.Ran)(once.Do(ctx, locks, "job", nil, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		}))
		want(t, once.Done)(once.Do(t.Context(), locks, "job", nil, nothing))
	})
}

// TestUnrecorded: a success that cannot be recorded has an error of its own; a run that must not be
// repeated does not begin unless it is recorded.
func TestUnrecorded(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx := t.Context()
		down := faultstore.Wrap(store)
		locks := storetest.Client(t, down, "a")
		result, err := once.Do(ctx, locks, "job", nil, func(context.Context) error {
			down.Set(faultstore.Acquire, faultstore.Refuse)
			return nil
		})
		if result.Verdict != once.Ran || !errors.Is(err, once.ErrNotRecorded) || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%v, %v; want ErrNotRecorded and why", result, err)
		}
		down.Set(faultstore.Acquire, nil)
		down.Set(faultstore.Release, faultstore.Refuse)
		result, err = once.Do(ctx, locks, "job", &once.Options{AtMostOnce: true}, func(context.Context) error {
			t.Error("it was run though that could not be recorded")
			return nil
		})
		if result.Verdict != once.Unknown || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%v, %v; want ErrUnavailable", result, err)
		}
		down.Set(faultstore.Release, nil)
		down.Set(faultstore.Lookup, faultstore.Refuse)
		result, err = once.Do(ctx, locks, "job", nil, nothing)
		if result.Verdict != once.Unknown || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%v, %v; want ErrUnavailable", result, err)
		}
	})
}

// TestInvalid: what cannot work is refused before anything is done.
func TestInvalid(t *testing.T) {
	storetest.Virtual(t, func(t *testing.T, store driver.Store) {
		ctx, locks := t.Context(), storetest.Client(t, store, "a")
		for _, period := range []time.Duration{0, -time.Hour, 2 * driver.MaxTTL} {
			if _, err := once.Every(ctx, locks, "job", period, nil, nothing); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("a period of %v: %v", period, err)
			}
		}
		for _, o := range []once.Options{{Wait: -1}, {Remember: -1}, {Skew: -1}, {Remember: 2 * driver.MaxTTL}, {Skew: driver.MaxTTL}} {
			if _, err := once.Do(ctx, locks, "job", &o, nothing); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		forgetful := faultstore.Wrap(store)
		forgetful.Bend(faultstore.Bent(func(can *driver.Guarantees) { can.Keep = false }))
		if _, err := once.Do(ctx, storetest.Client(t, forgetful, "b"), "job", nil, nothing); !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("a store that cannot keep names: %v", err)
		}
	})
}

// TestSlots: periods and ticks follow each other without gap or overlap.
func TestSlots(t *testing.T) {
	day := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		of         func(time.Time, time.Duration) once.Slot
		now        time.Time
		length     time.Duration
		start, end time.Time
	}{
		{once.Period, day, 24 * time.Hour, day, day.AddDate(0, 0, 1)},
		{once.Period, day.Add(-1), 24 * time.Hour, day.AddDate(0, 0, -1), day},
		{once.Period, day, 7 * 24 * time.Hour, day.AddDate(0, 0, -5), day.AddDate(0, 0, 2)},
		{once.Period, day.In(time.FixedZone("", 3600)), time.Hour, day, day.Add(time.Hour)},
		{once.Tick, day.Add(-time.Second), time.Hour, day, day.Add(30 * time.Minute)},
		{once.Tick, day.Add(29 * time.Minute), time.Hour, day, day.Add(30 * time.Minute)},
		{once.Tick, day.Add(30 * time.Minute), time.Hour, day.Add(time.Hour), day.Add(90 * time.Minute)},
		{once.Period, day, 0, time.Time{}, time.Time{}},
		{once.Tick, day, -1, time.Time{}, time.Time{}},
	} {
		if slot := test.of(test.now, test.length); slot.Start != test.start || slot.End != test.end {
			t.Errorf("the slot of %v by %v: %v to %v, want %v to %v", test.now, test.length, slot.Start, slot.End, test.start, test.end)
		}
	}
}
