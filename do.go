package holdfast

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lock, runs work, and releases the lock. The context passed to work ends when ctx
// does, and when the lock is lost; its cause is the reason. Work must return soon after its context
// has ended: Do waits for it, and the lock is released only then. The lock is released if work
// panics, too.
//
// Do returns the error of Acquire if work was not run, and else the error of work. If the lock was
// not held until work returned, or its release was not confirmed, the error shows that as well,
// also if work returned nil: it matches ErrLost, ErrReleased (after [Client.ReleaseAll], or a
// Release by work itself), ErrReleased and ErrClosed (after [Client.Close]), ErrHandedOver, or
// ErrUnavailable. ReleaseAll and Close wait for work until the deadline of the lock: no other
// caller has the lock while work runs that returns soon after the end of its context.
//
// Inside of work, [FromContext] returns the Lock, for its token.
func (c *Client) Do(ctx context.Context, name string, o *Options, work func(context.Context) error) error {
	return c.do(ctx, name, o, false, work)
}

func (c *Client) do(ctx context.Context, name string, o *Options, try bool, work func(context.Context) error) error {
	if work == nil {
		return opError("do", name, errNoWork)
	}
	lock, err := (&acquireOp{c: c, name: name, options: c.withDefaults(o), try: try}).do(ctx)
	if err != nil {
		return err
	}
	return lock.Do(ctx, work)
}

// Do runs work under a lock that has been acquired, and releases it, as [Client.Do] does:
// TryAcquire and then Do run work now or not at all. If the lock is no longer held, work is not
// run, and the error is that of [Lock.Err]. A second Do while work runs is refused with
// [ErrInvalid].
func (l *Lock) Do(ctx context.Context, work func(context.Context) error) error {
	_ = l.Err() // It ends the context if the deadline has passed.
	l.c.mu.Lock()
	err, running := l.contextErr(), l.working
	if err == nil {
		l.working = true
	}
	l.c.mu.Unlock()
	switch {
	case err != nil:
	case running:
		return opError("do", l.Name(), errWorkRunning)
	case work == nil:
		err = errNoWork
	case ctx == nil:
		err = errNoContext
	}
	defer l.Release()
	if err != nil {
		return opError("do", l.Name(), fmt.Errorf("the work was not run: %w", err))
	}
	workCtx, cancel := context.WithCancelCause(context.WithValue(ctx, lockKey{}, l))
	defer cancel(nil)
	l.cancelWith(cancel)
	err = work(workCtx)
	end := l.Err()
	lockErr := l.Release()
	if lockErr == nil && end != nil {
		lockErr = opError("do", l.Name(), fmt.Errorf("before the work had returned: %w", end))
	}
	return joinErrors(err, lockErr)
}

// DoAll is [Client.Do] with several locks, which it acquires as [Client.AcquireAll] does. The
// context of work ends when any of them is lost. Inside of work, [SetFromContext] returns the
// LockSet, for its tokens.
func (c *Client) DoAll(ctx context.Context, names []string, o *Options, work func(context.Context) error) error {
	if work == nil {
		return fmt.Errorf("holdfast: do: %w", errNoWork)
	}
	set, err := c.AcquireAll(ctx, names, o)
	if err != nil {
		return err
	}
	return set.Do(ctx, work)
}

// Do runs work under locks that have been acquired, and releases them one after the other, as
// [Client.DoAll] does.
func (s *LockSet) Do(ctx context.Context, work func(context.Context) error) (err error) {
	if work != nil {
		run := work
		work = func(ctx context.Context) error { return run(context.WithValue(ctx, setKey{}, s)) }
	}
	for _, l := range s.locks { // Each Do has that of the lock before inside.
		inner := work
		work = func(ctx context.Context) error { return l.Do(ctx, inner) }
	}
	defer func() {
		if !errors.Is(err, errWorkRunning) { // An outer Do that was refused has called no inner one.
			_ = s.Release()
		}
	}()
	return work(ctx)
}

type (
	lockKey struct{}
	setKey  struct{}
)

// FromContext returns the Lock under which [Client.Do] or [Lock.Do] runs the work that was passed
// ctx, or nil. In the work of [Client.DoAll] it is one of the LockSet.
func FromContext(ctx context.Context) *Lock {
	lock, _ := ctx.Value(lockKey{}).(*Lock)
	return lock
}

// SetFromContext returns the LockSet under which [Client.DoAll] or [LockSet.Do] runs the work that
// was passed ctx, or nil.
func SetFromContext(ctx context.Context) *LockSet {
	set, _ := ctx.Value(setKey{}).(*LockSet)
	return set
}

// joinErrors joins the error of the work and that of the lock on one line.
func joinErrors(work, lock error) error {
	switch {
	case lock == nil:
		return work
	case work == nil:
		return lock
	case errors.Is(work, lock):
		return work // the error of the work contains it already
	}
	return fmt.Errorf("%w (and %w)", work, lock)
}

// DoValue is [Client.Do] for work that returns a value. The value is that of work, whatever the
// error is, and the zero value if work was not run.
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

// TryDo is [Client.Do] with one attempt at the lock, as [Client.TryAcquire] makes it: work runs now
// or not at all. If the lock is held, the error is a [HeldError], and work was not run.
func (c *Client) TryDo(ctx context.Context, name string, o *Options, work func(context.Context) error) error {
	return c.do(ctx, name, o, true, work)
}
