package holdfast_test

import (
	"context"
	"sync/atomic"
	"testing"
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
