package holdfast

import (
	"context"
	"fmt"
)

// DoValue is [Client.Do] for work that returns a value. The value is that of work,
// whatever the error is, and the zero value if work was not run.
func DoValue[T any](ctx context.Context, c *Client, name string, o *Options, work func(context.Context) (T, error)) (T, error) {
	var value T
	if work == nil {
		return value, opError("do", name, errNoWork)
	}
	err := c.Do(ctx, name, o, func(ctx context.Context) error {
		var err error
		value, err = work(ctx)
		return err
	})
	return value, err
}

// TryDo is [Client.Do] with one attempt at the lock, as [Client.TryAcquire] makes
// it: work runs now or not at all. If the lock is held, the error is a [HeldError],
// and work was not run.
func (c *Client) TryDo(ctx context.Context, name string, o *Options, work func(context.Context) error) error {
	if work == nil {
		return opError("do", name, errNoWork)
	}
	lock, err := c.TryAcquire(ctx, name, o)
	if err != nil {
		return err
	}
	return lock.Do(ctx, work)
}

// Mistakes of the calling program.
var (
	errNoWork    = fmt.Errorf("%w: work is nil", ErrInvalid)
	errNoContext = fmt.Errorf("%w: ctx is nil", ErrInvalid)
)
