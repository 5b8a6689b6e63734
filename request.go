package holdfast

import (
	"context"
	"fmt"
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
	deadline := time.Now().Add(timeout)
	callerDeadline, ok := ctx.Deadline()
	byCaller := ok && callerDeadline.Before(deadline)
	if byCaller {
		deadline = callerDeadline
	}
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
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
	return value, err
}
