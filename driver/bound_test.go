package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

type key struct{}

// A Bound ends when its parent does, when its time is up, or by End, whichever
// is first; and it tells the same whether Done was asked for before or after.
func TestBound(t *testing.T) {
	ways := map[string]struct {
		end  func(cancel context.CancelFunc, b *driver.Bound)
		want error
	}{
		"cancelled": {func(cancel context.CancelFunc, _ *driver.Bound) { cancel() }, context.Canceled},
		"ended":     {func(_ context.CancelFunc, b *driver.Bound) { b.End() }, context.Canceled},
		"time is up": {func(context.CancelFunc, *driver.Bound) {
			time.Sleep(time.Second)
			synctest.Wait()
		}, context.DeadlineExceeded},
	}
	for name, c := range ways {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				defer cancel()
				b := driver.WithBound(parent, time.Second)
				defer b.End()
				if early && !open(b) {
					t.Errorf("%s: it has ended at once", name)
				}
				if b.Err() != nil || b.Value(key{}) != "value" {
					t.Errorf("%s: at first the error is %v, the value %v", name, b.Err(), b.Value(key{}))
				}
				c.end(cancel, b)
				got := b.Err()
				b.End()
				if !errors.Is(got, c.want) || open(b) || !errors.Is(b.Err(), got) {
					t.Errorf("%s, Done asked for early %v: the error is %v, then %v, open %v", name, early, got, b.Err(), open(b))
				}
			})
		}
	}
}

func open(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	default:
		return true
	}
}

// The deadline is the nearer one.
func TestBoundDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for bound, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: time.Minute} {
			b := driver.WithBound(parent, bound)
			defer b.End()
			if deadline, ok := b.Deadline(); !ok || time.Until(deadline) != want {
				t.Errorf("a bound of %v ends %v from now, want %v", bound, time.Until(deadline), want)
			}
			cancelled, deadline := driver.Ends(b)
			if cancelled != parent.Done() || bound == want && time.Until(deadline) != want || bound != want && !deadline.IsZero() {
				t.Errorf("a bound of %v: Ends says another channel, or %v", bound, deadline)
			}
		}
		if cancelled, deadline := driver.Ends(parent); cancelled != parent.Done() || !deadline.IsZero() {
			t.Errorf("Ends of another context says another channel, or %v", deadline)
		}
		if cancelled, _ := driver.Ends(driver.WithBound(context.Background(), time.Second)); cancelled != nil {
			t.Error("a bound of the background can be cancelled")
		}
	})
}

// overdue is a context whose deadline has passed, and who has not noticed it.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Minute), true }

// A Bound does not end by the deadline of its parent before the parent does: who
// asks why it has ended asks the parent.
func TestBoundEndsWithItsParent(t *testing.T) {
	b := driver.WithBound(overdue{t.Context()}, time.Second)
	defer b.End()
	if err := b.Err(); err != nil {
		t.Errorf("it has ended before its parent: %v", err)
	}
}

// late is a context that has been cancelled, and that tells contexts made of it
// later.
type late struct {
	context.Context
	cancelled chan struct{}
}

func (c late) Done() <-chan struct{} { return c.cancelled }

func (c late) Err() error {
	select {
	case <-c.cancelled:
		return context.Canceled
	default:
		return nil
	}
}

// A Bound has ended as soon as its parent has, also if its own Done, which was
// asked for, is not closed yet.
func TestBoundIsNotBehindItsParent(t *testing.T) {
	parent := late{t.Context(), make(chan struct{})}
	b := driver.WithBound(parent, time.Hour)
	defer b.End()
	b.Done()
	close(parent.cancelled)
	if b.Err() == nil {
		t.Error("the parent has ended, and the Bound has not")
	}
}

// A request that nobody waits for in vain costs one piece of memory: no timer, and
// no place in the other context.
func TestBoundIsCheap(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent.Done()
	allocs := testing.AllocsPerRun(100, func() {
		b := driver.WithBound(parent, time.Second)
		ends = context.Context(b)
		_ = ends.Err()
		b.End()
	})
	if allocs > 1 {
		t.Errorf("a Bound costs %v allocations", allocs)
	}
}

var ends context.Context // what the compiler cannot do away with

// A context that is made of a Bound ends with it, and needs no goroutine to.
func TestBoundHasChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := driver.WithBound(context.Background(), time.Hour)
		child, cancel := context.WithCancel(b)
		defer cancel()
		b.End()
		if child.Err() == nil { // at once: it was told in this goroutine
			t.Error("a child has not ended with its parent")
		}
	})
}
