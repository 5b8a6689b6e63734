package holdfast

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lock, runs work, and releases the lock. The context that work
// gets ends when ctx does, and when the lock is lost; its cause tells which.
// Work must return soon after its context has ended: Do waits for it, and the
// lock is released only then. The lock is released if work panics, too.
//
// Do returns the error of Acquire if work was not run; else work's own error.
// If the lock was lost, or its release not confirmed, the error says so as well
// (ErrLost, ErrUnavailable), also if work returned nil: then somebody else may
// have run meanwhile.
//
// Inside of work, [FromContext] gives the Lock, for its token.
func (c *Client) Do(ctx context.Context, name string, o *Options, work func(context.Context) error) error {
	lock, err := c.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	defer lock.Release()
	workCtx, cancel := context.WithCancelCause(context.WithValue(ctx, lockKey{}, lock))
	defer cancel(nil)
	lock.bind(cancel)
	err = work(workCtx)
	return both(err, lock.Release())
}

type lockKey struct{}

// FromContext returns the Lock under which [Client.Do] runs the work that was
// given ctx, or nil.
func FromContext(ctx context.Context) *Lock {
	lock, _ := ctx.Value(lockKey{}).(*Lock)
	return lock
}

// both joins the error of the work and that of the lock on one line.
func both(work, lock error) error {
	switch {
	case lock == nil:
		return work
	case work == nil:
		return lock
	case errors.Is(work, lock):
		return work // the work has reported it already
	}
	return fmt.Errorf("%w (and %w)", work, lock)
}
