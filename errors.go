package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// One sentinel for each fact, for errors.Is. Errors that carry details are types of their own
// ([HeldError], [LostError]) and match the sentinel too.
var (
	// ErrHeld: another holder has the lock. See [HeldError].
	ErrHeld = errors.New("held by another")

	// ErrLost: the lock was held and is no longer, through no doing of its holder. See [LostError].
	ErrLost = errors.New("lock lost")

	// ErrReleased: the lock was released by its holder. It is what a Lock's context and Err report
	// after Release, and is not a failure there.
	ErrReleased = errors.New("lock released")

	// ErrHandedOver: the lock was given away by its holder, by [Lock.HandOver]. It is what the
	// Lock's context and Err report from then on, and is not a failure there.
	ErrHandedOver = errors.New("lock handed over")

	// ErrNotHeld: nobody holds the lock; of a [Ticket] or a token, that its hold is over.
	ErrNotHeld = errors.New("not held")

	// ErrUnavailable: the store could not be reached, or did not answer in time, or failed. It does
	// not show whether the lock is held.
	ErrUnavailable = errors.New("store unavailable")

	ErrUnsupported = driver.ErrUnsupported // the store cannot do what was requested
	ErrInvalid     = driver.ErrInvalid     // an argument is out of bounds
	ErrClosed      = driver.ErrClosed      // the Client or its store has been closed

	// ErrCorrupt: the store's data of this lock is damaged, and a person has to repair it. The
	// error names the place.
	ErrCorrupt = driver.ErrCorrupt
)

// Reasons of a [LostError], for errors.Is.
var (
	// ErrExpired: no renewal was confirmed before the deadline.
	ErrExpired = errors.New("it was not renewed in time")

	// ErrTaken: the store does not have the lock for this holder any more: it expired there, was
	// broken, or was deleted by hand.
	ErrTaken = errors.New("the store no longer has it for this holder")

	// ErrMaxHold: the lock was held for as long as Options.MaxHold allows.
	ErrMaxHold = errors.New("it was held for its greatest time")
)

// Mistakes of the calling program.
var (
	errNoWork      = fmt.Errorf("%w: work is nil", ErrInvalid)
	errNoContext   = fmt.Errorf("%w: ctx is nil", ErrInvalid)
	errWorkRunning = fmt.Errorf("%w: Do runs work under it already; in that work call the function itself, with the same context", ErrInvalid)
)

// A HeldError describes the holder of a lock that could not be acquired. It matches ErrHeld.
type HeldError struct {
	// Record describes the hold, as far as the store knows it. Its Name is always set.
	Record Record

	// Self reports that this very Client holds the lock, by another goroutine or by the calling
	// one, which then waited for itself. Record.Since is then when the Client acquired it.
	Self bool
}

func (e *HeldError) Error() string {
	rec := e.Record
	text := strings.TrimPrefix(rec.String(), fmt.Sprintf("%q ", rec.Name))
	if e.Self {
		text += ", this very client"
		if !rec.Since.IsZero() {
			text += ", since " + rec.Since.Format(time.RFC3339)
		}
	}
	return text
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A LostError contains the lock that was lost, and the reason. It matches ErrLost and its Reason.
type LostError struct {
	Name   string
	Token  int64
	Reason error // ErrExpired, ErrTaken, ErrMaxHold
}

func (e *LostError) Error() string {
	return fmt.Sprintf("holdfast: lock %q (token %d) lost: %v", e.Name, e.Token, e.Reason)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }

// opError wraps err with the operation and the lock. It is applied once.
func opError(op, name string, err error) error {
	return fmt.Errorf("holdfast: %s %q: %w", op, name, err)
}

// opErrorAll is opError for several locks.
func opErrorAll(op string, names []string, err error) error {
	if len(names) == 1 {
		return opError(op, names[0], err)
	}
	return fmt.Errorf("holdfast: %s %q and %d more: %w", op, names[0], len(names)-1, err)
}

// storeError has an error match ErrUnavailable, unless it is permanent, or the end of ctx.
func storeError(ctx context.Context, err error) error {
	cut := ctx.Err()
	if driver.Permanent(err) || errors.Is(err, ErrUnavailable) || cut != nil && errors.Is(err, cut) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// A waitError reports that a wait was cut short. It matches ctx.Err(), too: for Options.Wait that
// is context.DeadlineExceeded.
type waitError struct {
	error
	ctxErr error
}

func (e waitError) Unwrap() []error { return []error{e.error, e.ctxErr} }
