// Package bind ties a piece of work to the lock under which it runs.
package bind

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

type lockKey struct{}

// Context returns a context for work under the lock: it ends when ctx does, and
// when the lock is lost, with the reason as its cause. Lock finds the lock in
// it. The cancel function must be called when the work is over.
func Context(ctx context.Context, lock *holdfast.Lock) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithValue(ctx, lockKey{}, lock))
	held := lock.Context()
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return work, func() {
		stop()
		cancel(nil)
	}
}

// Lock returns the lock of a context that Context has made, or of one derived
// from it; nil for any other.
func Lock(ctx context.Context) *holdfast.Lock {
	lock, _ := ctx.Value(lockKey{}).(*holdfast.Lock)
	return lock
}

// Acquire takes a lock: at once or not at all if o.Wait is 0, else within that
// time.
func Acquire(ctx context.Context, locks *holdfast.Client, name string, o holdfast.Options) (*holdfast.Lock, error) {
	if o.Wait == 0 {
		return locks.TryAcquire(ctx, name, &o)
	}
	return locks.Acquire(ctx, name, &o)
}

// Both joins the error of the work and that of the lock on one line.
func Both(work, lock error) error {
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
