package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// One sentinel for each fact, for errors.Is. Errors that carry details are
// types of their own ([HeldError], [LostError]) and match the sentinel too.
var (
	// ErrHeld: somebody else holds the lock. See [HeldError].
	ErrHeld = errors.New("held by another")

	// ErrLost: the lock was held and is no longer, through no doing of its
	// holder. See [LostError].
	ErrLost = errors.New("lock lost")

	// ErrReleased: the lock was released by its holder. It is what a Lock's
	// context and Err report after Release, and is not a failure there.
	ErrReleased = errors.New("lock released")

	// ErrHandedOver: the lock was given away by its holder, by
	// [Lock.HandOver]. It is what the Lock's context and Err report from then
	// on, and is not a failure there.
	ErrHandedOver = errors.New("lock handed over")

	// ErrNotHeld: nobody holds the lock; of a [Ticket], that the hold which it
	// stands for is over.
	ErrNotHeld = errors.New("not held")

	// ErrUnavailable: the store could not be reached, or did not answer in
	// time, or failed. It says nothing about whether the lock is held.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUnsupported: this store cannot do what was asked.
	ErrUnsupported = driver.ErrUnsupported

	// ErrInvalid: an argument is out of bounds.
	ErrInvalid = driver.ErrInvalid

	// ErrCorrupt: what the store keeps for this lock is damaged, and a person
	// has to mend it. The error says where to look.
	ErrCorrupt = driver.ErrCorrupt

	// ErrClosed: the client or its store has been closed.
	ErrClosed = driver.ErrClosed
)

// Reasons of a [LostError], for errors.Is.
var (
	// ErrExpired: the time for which the store had promised the lock was over
	// before a renewal was confirmed.
	ErrExpired = errors.New("it was not renewed in time")

	// ErrTaken: the store says that the lock is not ours any more: it expired
	// there, was broken, or was deleted by hand.
	ErrTaken = errors.New("the store no longer has it for this holder")

	// ErrBroken: the lock was broken through this very client.
	ErrBroken = errors.New("it was broken")

	// ErrMaxHold: the lock was held for as long as Options.MaxHold allows.
	ErrMaxHold = errors.New("it was held for its greatest time")
)

// A HeldError says who holds a lock that could not be had. It matches ErrHeld.
type HeldError struct {
	// Record describes the hold, as far as the store told. Its Name is always
	// set; a picture of the past, like every Record.
	Record Record
}

func (e *HeldError) Error() string {
	rec := e.Record
	text := "held by another"
	switch {
	case rec.Kept:
		text = "kept after its release"
	case rec.Holder != "":
		text = "held by " + rec.Holder
	}
	if rec.Remaining > 0 {
		text += fmt.Sprintf(", for %v unless renewed", readable(rec.Remaining))
	}
	return text
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A LostError says which lock was lost, and why. It matches ErrLost and its
// Reason.
type LostError struct {
	Name   string
	Token  int64
	Reason error // ErrExpired, ErrTaken, ErrBroken, ErrMaxHold
}

func (e *LostError) Error() string {
	return fmt.Sprintf("holdfast: lock %q (token %d) lost: %v", e.Name, e.Token, e.Reason)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }

// failed wraps an error with the operation and the lock, once.
func failed(op, name string, err error) error {
	return fmt.Errorf("holdfast: %s %q: %w", op, name, err)
}

// failedAll is failed for several locks.
func failedAll(op string, names []string, err error) error {
	if len(names) == 1 {
		return failed(op, names[0], err)
	}
	return fmt.Errorf("holdfast: %s %q and %d more: %w", op, names[0], len(names)-1, err)
}

// storeError gives an error of a store its sentinel. The end of the caller's own
// ctx is no fault of the store.
func storeError(ctx context.Context, err error) error {
	cut := ctx.Err()
	if driver.Permanent(err) || errors.Is(err, ErrUnavailable) || cut != nil && errors.Is(err, cut) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// A waitError tells that a wait was cut short, and what was waited for.
type waitError struct {
	waited time.Duration
	cut    error // ctx.Err(), or context.DeadlineExceeded for Options.Wait
	last   error // what the last attempt met
}

func (e *waitError) Error() string {
	if e.last == nil {
		return e.cut.Error()
	}
	return fmt.Sprintf("gave up after %v: %v", readable(e.waited), e.last)
}

func (e *waitError) Unwrap() []error {
	if e.last == nil {
		return []error{e.cut}
	}
	return []error{e.cut, e.last}
}

// readable rounds a duration to what a person wants to read.
func readable(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d
}
