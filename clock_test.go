package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
)

// During a suspend the monotonic clock stands still and the boot clock goes on.
// The lock must be found lost at the first look after it.
func TestSuspendCountsAgainstTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var suspended atomic.Int64
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			return time.Since(began) + time.Duration(suspended.Load())
		}))
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		ended := lock.Context().Done()
		time.Sleep(5 * time.Second)
		if err := lock.Err(); err != nil {
			t.Fatal(err)
		}
		suspended.Store(int64(time.Hour))
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
		<-ended
		if lock = acquire(t, c, "b", nil); lock.Err() != nil {
			t.Errorf("acquired after the suspend: %v", lock.Err())
		}
		if left := time.Until(lock.Deadline()); left != 29698*ms {
			t.Errorf("%v to the deadline after the suspend", left)
		}
		// Without a look, the context ends within a second of the resume.
		ended = lock.Context().Done()
		suspended.Store(int64(2 * time.Hour))
		resumed := time.Now()
		<-ended
		if late := time.Since(resumed); late > time.Second {
			t.Errorf("context ended %v after the resume", late)
		}
		// A suspend of which nobody has noticed is in the way of nobody.
		suspended.Store(int64(3 * time.Hour))
		lock, err := c.TryAcquire(ctx, "c", nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lock.Deadline()); left > 29698*ms || lock.Err() != nil {
			t.Errorf("acquired after a suspend: %v to the deadline, %v", left, lock.Err())
		}
	})
}

// Steps of the wall clock, forward and back, change nothing; but each has the boot
// clock read, which is not done else.
func TestWallClockSteps(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var reads, step atomic.Int64
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			reads.Add(1)
			return time.Since(began)
		}))
		t.Cleanup(holdfast.SetWallClock(func(t time.Time) int64 { return t.UnixNano() + step.Load() }))
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true})
		synctest.Wait() // Nobody else looks at the clocks now.
		for _, by := range []time.Duration{time.Hour, -24 * time.Hour, ms, -ms} {
			step.Add(int64(by))
			left := time.Until(lock.Deadline())
			if before := reads.Load(); lock.Err() != nil || left != 29698*ms || reads.Load() != before {
				t.Errorf("the wall clock was moved by %v: %v to the deadline, %v, and the boot clock was read %d times",
					by, left, lock.Err(), reads.Load()-before)
			}
			if reads.Swap(0) == 0 {
				t.Errorf("the wall clock was moved by %v, and the boot clock was not read", by)
			}
		}
	})
}

// A suspend while the clocks are being read is noticed at the next look.
func TestSuspendBetweenReadings(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var suspended, step atomic.Int64
		var asleep atomic.Bool // The next reading of the boot clock is the last before a suspend.
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			now := time.Since(began) + time.Duration(suspended.Load())
			if asleep.Swap(false) {
				suspended.Store(int64(time.Hour))
			}
			return now
		}))
		t.Cleanup(holdfast.SetWallClock(func(t time.Time) int64 { return t.UnixNano() + step.Load() + suspended.Load() }))
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		synctest.Wait() // Nobody else looks at the clocks now.
		step.Store(int64(time.Second))
		asleep.Store(true)
		if err := lock.Err(); err != nil || asleep.Load() {
			t.Fatalf("before the suspend: %v (the boot clock was read: %v)", err, !asleep.Load())
		}
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
	})
}

// A suspend between two readings of the clocks is noticed by the next one, and a
// pause between them is not taken for a suspend.
func TestClocksAreReadInOrder(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var suspended atomic.Int64
		var armed atomic.Bool
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			reading := time.Since(began) + time.Duration(suspended.Load())
			if armed.CompareAndSwap(true, false) {
				suspended.Add(int64(time.Minute)) // just after the reading
			}
			return reading
		}))
		t.Cleanup(holdfast.SetWallClock(func(t time.Time) int64 { return t.UnixNano() + suspended.Load() }))
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true})
		armed.Store(true)
		suspended.Store(int64(time.Second)) // makes the clocks be read
		_ = lock.Err()
		wantErr(t, lock.Err(), holdfast.ErrExpired)
	})
	virtual(t, func(t *testing.T, ctx context.Context) {
		var pause, stepped atomic.Int64
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			time.Sleep(time.Duration(pause.Load()))
			return time.Since(began)
		}))
		t.Cleanup(holdfast.SetWallClock(func(t time.Time) int64 { return t.UnixNano() + stepped.Load() }))
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true})
		pause.Store(int64(time.Second))
		stepped.Store(int64(time.Hour)) // makes the clocks be read, with the pause in between
		_ = lock.Err()
		pause.Store(0)
		if left, want := time.Until(lock.Deadline()), 30*time.Second-302*ms-time.Since(began); left < want-2*ms {
			t.Errorf("the deadline is %v off, want %v", left, want)
		}
	})
}
