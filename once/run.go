package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// runLocked runs the work under the lock of its job.
func (t *task) runLocked(ctx context.Context, lock *holdfast.Lock, work func(context.Context) error) (Result, error) {
	result := t.result()
	if t.o.AtMostOnce {
		err := t.placeMark(ctx)
		if held := (*holdfast.HeldError)(nil); errors.As(err, &held) {
			return result.withRecord(Done, held.Record), nil // begun since the lookup, after this lock was lost
		}
		if err != nil {
			return result, fmt.Errorf("%w; it was not run", err)
		}
	}
	err := lock.Do(ctx, func(ctx context.Context) error {
		result.Verdict, result.Token = Ran, lock.Token()
		err := work(ctx)
		if err != nil || lock.Err() != nil || t.o.AtMostOnce {
			return err
		}
		// The mark of another call serves as well: that call received its reply too late.
		if err := t.placeMark(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, holdfast.ErrHeld) {
			return fmt.Errorf("%w: %w", ErrNotRecorded, err)
		}
		return nil
	})
	return result, err
}

// placeMark places the mark. The error matches holdfast.ErrHeld if the mark has been placed
// already.
//
// The TTL of the hold is the time for which the mark is to be kept. So the hold serves as the mark
// if no release reaches the store.
func (t *task) placeMark(ctx context.Context) error {
	keep := t.keepMarkFor()
	if keep <= 0 {
		return nil // no call can need the mark any more
	}
	keep = min(max(keep, driver.MinTTL), driver.MaxTTL)
	mark, err := t.locks.TryAcquire(ctx, t.markName, &holdfast.Options{TTL: keep, NoRenew: true})
	if err != nil {
		return err
	}
	return mark.ReleaseKeep(max(keep-time.Since(mark.Since()), driver.MinTTL))
}
