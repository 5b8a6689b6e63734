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
	return lock.Do(ctx, work)
}

// Do runs work under a lock that has been acquired, and releases it, as
// [Client.Do] does: TryAcquire and then Do run work now or not at all. If the
// lock is lost already, the context of work has ended when it begins.
func (l *Lock) Do(ctx context.Context, work func(context.Context) error) error {
	return under(ctx, lockKey{}, l, work)
}

// DoAll is [Client.Do] with several locks, which it acquires as
// [Client.AcquireAll] does. The context of work ends when any of them is lost.
// Inside of work, [SetFromContext] gives the LockSet, for its tokens.
func (c *Client) DoAll(ctx context.Context, names []string, o *Options, work func(context.Context) error) error {
	set, err := c.AcquireAll(ctx, names, o)
	if err != nil {
		return err
	}
	return set.Do(ctx, work)
}

// Do runs work under locks that have been acquired, and releases them, as
// [Client.DoAll] does.
func (s *LockSet) Do(ctx context.Context, work func(context.Context) error) error {
	return under(ctx, setKey{}, s, work)
}

type (
	lockKey struct{}
	setKey  struct{}
)

// A handle is a Lock or a LockSet.
type handle interface {
	bind(work context.CancelCauseFunc)
	Release() error
}

// under runs work while the handle is held, and releases it. Work finds it in
// its context under key.
func under(ctx context.Context, key any, held handle, work func(context.Context) error) error {
	defer held.Release()
	workCtx, cancel := context.WithCancelCause(context.WithValue(ctx, key, held))
	defer cancel(nil)
	held.bind(cancel)
	err := work(workCtx)
	return both(err, held.Release())
}

// FromContext returns the Lock under which [Client.Do] or [Lock.Do] runs the work
// that was given ctx, or nil.
func FromContext(ctx context.Context) *Lock {
	lock, _ := ctx.Value(lockKey{}).(*Lock)
	return lock
}

// SetFromContext returns the LockSet under which [Client.DoAll] or [LockSet.Do]
// runs the work that was given ctx, or nil.
func SetFromContext(ctx context.Context) *LockSet {
	set, _ := ctx.Value(setKey{}).(*LockSet)
	return set
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
