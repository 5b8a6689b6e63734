package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
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
// ErrUnavailable. ReleaseAll and Close wait for work until the deadline of the lock.
//
// Inside of work, [FromContext] returns the Lock, for its token.
func (c *Client) Do(ctx context.Context, name string, o *Options, work func(context.Context) error) error {
	return c.do(ctx, name, o, opAcquire, work)
}

func (c *Client) do(ctx context.Context, name string, o *Options, op string, work func(context.Context) error) error {
	if work == nil {
		return opError("do", name, errNoWork)
	}
	lock, err := (&lease{c: c, op: op}).acquire(ctx, name, o)
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
	return runLocked(ctx, lockKey{}, l, []*Lock{l}, work)
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

// Do runs work under locks that have been acquired, and releases them, as [Client.DoAll] does.
func (s *LockSet) Do(ctx context.Context, work func(context.Context) error) error {
	return runLocked(ctx, setKey{}, s, s.locks, work)
}

type lockKey struct{} // of the value of a context
type setKey struct{}

// A heldLock is a Lock or a LockSet.
type heldLock interface {
	Err() error
	cancelWith(cancel context.CancelCauseFunc)
	release(keep time.Duration, byDo bool) error
	doError(err error) error // adds the names
}

func (l *Lock) doError(err error) error    { return opError("do", l.Name(), err) }
func (s *LockSet) doError(err error) error { return opErrorAll("do", s.Names(), err) }

// runLocked runs work while held lasts, which has the locks, and then releases it. The context of
// work has held as the value of key. From the check of the locks on, ReleaseAll and Close leave
// their release to runLocked.
func runLocked(ctx context.Context, key any, held heldLock, locks []*Lock, work func(context.Context) error) error {
	c, err, running := locks[0].c, held.Err(), false
	c.mu.Lock()
	for _, l := range locks {
		err, running = cmp.Or(err, l.contextErr()), running || l.working
	}
	for _, l := range locks {
		l.working = l.working || !running && err == nil
	}
	c.mu.Unlock()
	switch {
	case running:
		return held.doError(errWorkRunning)
	case err != nil:
	case work == nil:
		err = errNoWork
	case ctx == nil:
		err = errNoContext
	}
	defer held.release(0, true)
	if err != nil {
		return held.doError(fmt.Errorf("the work was not run: %w", err))
	}
	workCtx, cancel := context.WithCancelCause(context.WithValue(ctx, key, held))
	defer cancel(nil)
	held.cancelWith(cancel)
	err = work(workCtx)
	end := held.Err()
	lockErr := held.release(0, true)
	if lockErr == nil && end != nil {
		lockErr = held.doError(fmt.Errorf("before the work had returned: %w", end))
	}
	switch {
	case lockErr == nil, err != nil && errors.Is(err, lockErr): // which it contains already
		return err
	case err == nil:
		return lockErr
	}
	return fmt.Errorf("%w (and %w)", err, lockErr) // errors.Join would put them on two lines
}

// FromContext returns the Lock under which [Client.Do] or [Lock.Do] runs the work that was passed
// ctx, or nil.
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
	return c.do(ctx, name, o, opTry, work)
}
