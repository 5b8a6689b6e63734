package batch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newQueue(send func(ctx context.Context, calls []string)) *Queue[string] {
	return &Queue[string]{
		Send: send, Name: func(call string) string { return call }, InFlight: 1, Max: 3, Bound: 3 * time.Second,
		StuckAfter: 250 * time.Millisecond, MinInline: time.Second,
	}
}

// A batch that hangs holds up others for StuckAfter at most, and its own names until it ends; and
// every call returns by its deadline.
func TestHungBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		q := newQueue(func(ctx context.Context, calls []string) {
			if sent.Add(1) == 1 {
				<-ctx.Done()
			}
			if slices.Contains(calls, "deaf") {
				time.Sleep(10 * time.Second)
			}
			if len(calls) > 3 {
				t.Errorf("%d calls are sent together", len(calls))
			}
			if slices.Contains(calls, "b") {
				t.Error("a call is sent that was given up")
			}
		})
		q.MinInline = 0
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := q.Do(ctx, "a"); !errors.Is(err, ErrNoReply) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := q.Do(ctx, "b"); !errors.Is(err, ErrNotSent) {
			t.Error(err)
		}
		for range 2 {
			go func() { _ = q.Do(t.Context(), "d", "e") }()
		}
		if err := q.Do(t.Context(), "c"); err != nil || time.Since(began) != 350*time.Millisecond {
			t.Errorf("another name: %v after %v", err, time.Since(began))
		}
		if err := q.Do(t.Context(), "a"); !errors.Is(err, ErrNotSent) && (err != nil || time.Since(began) < 3*time.Second) {
			t.Errorf("its own name: %v after %v, before the batch has ended", err, time.Since(began))
		}
		began = time.Now()
		if err := q.Do(t.Context(), "deaf"); !errors.Is(err, ErrNoReply) || time.Since(began) != 3*time.Second {
			t.Errorf("a call without a deadline: %v after %v", err, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.flying) != 0 || len(q.waiting) != 0 {
			t.Errorf("left: %d batches, %d callers", len(q.flying), len(q.waiting))
		}
		if len(q.late) != 0 {
			t.Errorf("%d names are left", len(q.late))
		}
	})
}

// A call is sent after those of its name that were given up, whichever of their batches ends first.
func TestOrderAfterTwoGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		q := newQueue(func(context.Context, []string) {
			if n := sent.Add(1); n < 3 {
				time.Sleep(2 * time.Second / time.Duration(n*n))
			}
		})
		q.InFlight = 2
		for range 2 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_ = q.Do(ctx, "a")
			}()
			synctest.Wait()
		}
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		if err := q.Do(t.Context(), "a"); err != nil || time.Since(began) != 1800*time.Millisecond {
			t.Errorf("%v after %v, want the end of the first batch", err, time.Since(began))
		}
	})
}
