package holdfast

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// request makes one request to the store, on the caller's goroutine, and returns its result. The
// request ends when it is answered, after timeout, or at the deadline of ctx. It does not end when
// ctx is canceled, so that its outcome becomes known. A store in the memory of this process answers
// at once and gets ctx itself. All requests go through this function, except those of List; op is
// what the hooks get.
func request[T any](
	c *Client, ctx context.Context, op string, timeout time.Duration, call func(context.Context) (T, error),
) (value T, err error) {
	if c.hooks.Event != nil {
		began := c.clock.now()
		defer func() { c.emitRequest(ctx, op, c.clock.now()-began, err) }()
	}
	if c.inProcess {
		return call(ctx)
	}
	limited := &requestContext{parent: ctx, deadline: time.Now().Add(timeout)}
	callerDeadline, ok := ctx.Deadline()
	byCaller := ok && callerDeadline.Before(limited.deadline)
	if byCaller {
		limited.deadline = callerDeadline
	}
	value, err = call(limited)
	if err != nil {
		expired := limited.Err() != nil
		if err == context.DeadlineExceeded || expired && !driver.IsNotApplied(err) {
			if byCaller && expired {
				<-ctx.Done() // Its timer may fire a little later than the deadline.
			}
			if err = ctx.Err(); err == nil {
				err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, roundDuration(timeout))
			}
		}
	}
	limited.mu.Lock()
	defer limited.mu.Unlock()
	if limited.cancel != nil {
		limited.cancel()
	}
	return value, err
}

// A requestContext is the context of one request. It has the values of its parent and a deadline of
// its own. It has no timer until Done is called: most stores pass the deadline to the connection,
// and a timer for each request costs more than the rest of the request.
type requestContext struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	timed  context.Context // has the timer; nil until Done is called
	cancel context.CancelFunc
}

// Deadline implements [context.Context].
func (r *requestContext) Deadline() (time.Time, bool) { return r.deadline, true }

// Done implements [context.Context].
func (r *requestContext) Done() <-chan struct{} { return r.withTimer().Done() }

// Err implements [context.Context].
func (r *requestContext) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed != nil {
		return r.timed.Err()
	}
	if time.Now().Before(r.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context].
func (r *requestContext) Value(key any) any {
	return context.WithoutCancel(r.parent).Value(key)
}

// AfterFunc lets package context derive contexts without a goroutine for each.
func (r *requestContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(r.withTimer(), f)
}

// withTimer returns the context that has the timer, and makes it at the first call.
func (r *requestContext) withTimer() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timed == nil {
		r.timed, r.cancel = context.WithDeadline(context.WithoutCancel(r.parent), r.deadline)
	}
	return r.timed
}
