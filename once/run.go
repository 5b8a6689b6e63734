package once

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// run runs the work under the lock of its job.
func (t *task) run(ctx context.Context, lock *holdfast.Lock, work func(context.Context) error) (Result, error) {
	result := Result{Verdict: Ran, Slot: t.slot, Token: lock.Token()}
	if t.o.AtMostOnce {
		if err := t.record(ctx); err != nil {
			result.Verdict = Unknown
			return result, fmt.Errorf("%w; it was not run", err)
		}
	}
	err := lock.Do(ctx, func(ctx context.Context) error {
		err := work(ctx)
		if err != nil || lock.Err() != nil || t.o.AtMostOnce {
			return err
		}
		if err := t.record(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%w: %w", ErrNotRecorded, err)
		}
		return nil
	})
	return result, err
}

// record places the mark. The caller has the lock, so nobody else does; that the
// mark is there already means that an earlier call was answered too late.
//
// The hold lasts as long as the mark is to be kept, so that it serves as one if
// its release is not confirmed.
func (t *task) record(ctx context.Context) error {
	keep := t.keep()
	if keep <= 0 {
		return nil // nobody can ask any more
	}
	keep = min(max(keep, driver.MinTTL), driver.MaxTTL)
	mark, err := t.locks.TryAcquire(ctx, t.mark, &holdfast.Options{TTL: keep, MinHold: keep, NoRenew: true})
	if errors.Is(err, holdfast.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	return mark.Release()
}
