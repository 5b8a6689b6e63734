package redisstore

import (
	"context"
	"sync"
	"time"
)

// deadlineGrain is how much later than its deadline a request may end.
const deadlineGrain = 100 * time.Millisecond

// Deadlines has channels that are closed soon after a deadline. The client library reads the
// deadline of a context where it waits for the network, and the channel where it waits for a
// connection. Requests with about the same deadline share a channel: hardly any request reaches its
// deadline, and a timer for each one would cost more than the rest of its wait.
type deadlines struct {
	mu    sync.Mutex
	start time.Time
	done  map[time.Duration]chan struct{} // by the time since start at which they are closed
}

// after returns a channel that is closed between a deadline and deadlineGrain later.
func (d *deadlines) after(deadline time.Time) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		d.start, d.done = time.Now(), map[time.Duration]chan struct{}{}
	}
	end := (deadline.Sub(d.start) + deadlineGrain - 1).Truncate(deadlineGrain)
	if d.done[end] == nil {
		done := make(chan struct{})
		d.done[end] = done
		time.AfterFunc(time.Until(d.start.Add(end)), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.done, end)
			close(done)
		})
	}
	return d.done[end]
}

// A deadlineContext has a deadline and the values of another context, which does not cancel it.
type deadlineContext struct {
	context.Context
	deadline time.Time
	done     <-chan struct{}
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *deadlineContext) Done() <-chan struct{}       { return c.done }

func (c *deadlineContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// withDeadline calls f, which uses the client without a queue, and returns at the deadline of ctx
// at the latest, or after requestBound if that is sooner. A client that does not obey deadlines
// may keep f longer, on a goroutine of its own.
func withDeadline[T any](
	s *Store, ctx context.Context, f func(context.Context) (T, error),
) (value T, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	if s.honorsDeadline {
		defer cancel()
		return f(ctx)
	}
	done := make(chan struct{})
	var late T
	var lateErr error
	go func() {
		defer cancel()
		defer close(done)
		late, lateErr = f(ctx)
	}()
	select {
	case <-done:
		return late, lateErr
	case <-ctx.Done():
	}
	select {
	case <-done: // f has returned, and canceled ctx.
		return late, lateErr
	default:
		return value, ctx.Err()
	}
}
