//go:build unix

package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A batch that hangs, whoever carries it, holds up the others for a while only;
// when it comes back the others keep their runner.
func TestLaneLeavesAHungBatch(t *testing.T) {
	for what, begin := range map[string]func(l *lane){
		"carried by its caller": func(l *lane) {
			run, _ := l.lead()
			go l.carryAlone(context.Background(), run, &call{})
		},
		"carried by a goroutine": func(l *lane) { l.put(&call{}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newStuckLane()
			begin(&l.lane)
			synctest.Wait()
			l.put(&call{})
			time.Sleep(requestBound - time.Millisecond)
			synctest.Wait()
			if len(l.batches()) != 1 {
				t.Errorf("%s: a second batch was sent before the bound", what)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if len(l.batches()) != 2 {
				t.Errorf("%s: a batch that hangs holds up others beyond the bound", what)
			}
			close(l.words[0])
			synctest.Wait()
			if l.idle() {
				t.Errorf("%s: the second batch has no runner", what)
			}
			close(l.words[1])
			synctest.Wait()
			if !l.idle() {
				t.Errorf("%s: a lane without calls has a runner", what)
			}
		})
	}
}

// A call that comes to a batch that hangs beyond the bound is not held up at all,
// and neither are those that did not fit into the batch.
func TestLaneOfABatchThatHangsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStuckLane()
		calls := make([]*call, batchMax+1)
		for i := range calls {
			calls[i] = &call{}
		}
		l.put(calls...)
		time.Sleep(requestBound)
		synctest.Wait()
		if got := l.batches(); !slices.Equal(got, []int{batchMax, 1}) {
			t.Errorf("after the bound the batches are of %d calls, want %d and 1", got, batchMax)
		}
		time.Sleep(10 * requestBound)
		l.put(&call{})
		synctest.Wait()
		if got := l.batches(); len(got) != 3 {
			t.Errorf("long after the bound the batches are of %d calls, want one more", got)
		}
		for _, word := range l.words {
			close(word)
		}
		synctest.Wait()
		if !l.idle() {
			t.Error("a lane without calls has a runner")
		}
	})
}

// A lane that is busy for long has one runner, as long as each batch is in time; it
// is the batch that hangs, not the first one, that is waited for.
func TestLaneThatIsBusyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStuckLane()
		for range l.words {
			l.put(&call{})
			synctest.Wait()
		}
		time.Sleep(requestBound - time.Second)
		l.words[0] <- struct{}{}
		synctest.Wait()
		l.put(&call{})
		time.Sleep(requestBound - time.Second)
		synctest.Wait()
		if got := l.batches(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("within the bound the batches are of %d calls, want 1 and 2", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := l.batches(); !slices.Equal(got, []int{1, 2, 1}) {
			t.Errorf("at the bound of the second the batches are of %d calls, want 1, 2 and 1", got)
		}
		close(l.words[1])
		close(l.words[2])
		synctest.Wait()
		if !l.idle() {
			t.Error("a lane without calls has a runner")
		}
	})
}

// A batch ends at the bound, and that of a caller at his deadline if that is sooner.
func TestLaneBoundsItsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends time.Duration
		l := &lane{}
		l.exec = func(ctx context.Context, _ []*call) {
			deadline, _ := ctx.Deadline()
			ends = time.Until(deadline)
		}
		alone := func(ctx context.Context) {
			run, _ := l.lead()
			l.carryAlone(ctx, run, &call{})
		}
		sooner, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		later, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for what, c := range map[string]struct {
			do   func()
			want time.Duration
		}{
			"a caller who must be done sooner": {func() { alone(sooner) }, time.Second},
			"a caller with a later deadline":   {func() { alone(later) }, requestBound},
			"a caller without a deadline":      {func() { alone(t.Context()) }, requestBound},
			"a goroutine of the lane":          {func() { l.put(&call{}) }, requestBound},
		} {
			c.do()
			synctest.Wait()
			if ends != c.want {
				t.Errorf("carried by %s, a batch ends after %v, want %v", what, ends, c.want)
			}
		}
	})
}

// A caller waits until the bound of his request, near or far, and not much longer.
func TestHowLongACallIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStuckLane()
		l.put(&call{})
		for _, limit := range []time.Duration{time.Millisecond, noHurry, noHurry + 1, time.Hour} {
			c := &call{}
			l.put(c)
			bound := driver.WithBound(context.Background(), limit)
			began := time.Now()
			err := l.wait(bound, c)
			bound.End()
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took < limit || took >= limit+alarmGrain {
				t.Errorf("a call that may take %v: %v after %v", limit, err, took)
			}
		}
		for _, word := range l.words {
			close(word)
		}
	})
}

// A call that was begun is told its end, and is not sent when its context is over.
func TestLaneEndsOverdueCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStuckLane()
		ends := map[string]error{}
		begin := func(name string, limit time.Duration) context.CancelFunc {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			c := &call{ctx: ctx}
			c.then = func() { ends[name] = c.err }
			l.put(c)
			synctest.Wait()
			return cancel
		}
		begin("on its way", time.Second)
		begin("overdue", time.Second)
		begin("cancelled", time.Hour)()
		begin("in time", 3*time.Second)
		time.Sleep(2 * time.Second)
		close(l.words[0])
		close(l.words[1])
		synctest.Wait()
		if got := l.batches(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("batches of %v calls were sent, want one each", got)
		}
		if err := ends["overdue"]; !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call that was overdue ended with %v", err)
		}
		if err := ends["cancelled"]; !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.Canceled) {
			t.Errorf("the call that was given up ended with %v", err)
		}
		if len(ends) != 4 || ends["on its way"] != nil || ends["in time"] != nil {
			t.Errorf("the calls have ended so: %v", ends)
		}
		if !l.idle() {
			t.Error("a lane without calls has a runner")
		}
	})
}
