package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Options say how work is run once. The zero value, and nil, are good defaults.
type Options struct {
	// TTL is the time after which the job of a crashed replica is free again.
	// The bounds and the default are those of holdfast.Options.TTL. It has
	// nothing to do with how long the work takes.
	TTL time.Duration

	// Wait is for how long to wait for a job that is busy; 0 means not at all.
	Wait time.Duration

	// Remember is for how long work given to Do counts as done after its end;
	// 0 means 1 h. Slots do not use it. At most driver.MaxTTL.
	Remember time.Duration

	// Skew bounds the difference between any two replicas' wall clocks, for
	// work with slots; 0 means 1 min. A greater value costs only that the
	// store keeps marks longer.
	Skew time.Duration

	// AtMostOnce records that the work is done before it begins: then it is not
	// repeated, even if it fails or its process crashes.
	AtMostOnce bool

	// Metadata is shown to everybody who looks up the lock of a job that is
	// running. The bounds are those of holdfast.Options.Metadata.
	Metadata map[string]string
}

// Do runs a piece of work unless it was done in the last while (see
// Options.Remember) or is being done. The job is its name, as in
// "order:42:charge".
//
// The context of the work ends when ctx does and when the lock of the job is
// lost, with the reason as its cause; [Lock] gives the lock. Work must
// return soon after that, with an error if it has not been done.
//
// The error is not nil if the store could not be asked, if the work returned
// one, if the lock was lost while it ran (holdfast.ErrLost), and if its success
// could not be recorded (ErrNotRecorded). If the work was not run for a good
// reason, the Result says which, and the error is nil.
func Do(ctx context.Context, locks *holdfast.Client, job string, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	t.mark = job + "/done"
	t.keep = func() time.Duration { return t.o.Remember }
	t.open = func() bool { return true }
	return t.do(ctx, work)
}

// Every runs a piece of work once in each period; see [Period]. It can be called
// as often as one likes, for instance by a timer that is shorter than the period.
// Errors are those of Do.
func Every(ctx context.Context, locks *holdfast.Client, job string, period time.Duration, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	return t.in(ctx, Period(t.now(), period), work)
}

// In runs a piece of work once in a slot. Errors are those of Do.
func In(ctx context.Context, locks *holdfast.Client, job string, slot Slot, o *Options, work func(context.Context) error) (Result, error) {
	return newTask(locks, job, o).in(ctx, slot, work)
}

func (t *task) in(ctx context.Context, slot Slot, work func(context.Context) error) (Result, error) {
	t.slot = slot
	t.mark = slot.mark(t.job)
	t.open = func() bool { return t.now().Before(slot.End) }
	t.keep = func() time.Duration {
		left := slot.End.Sub(t.now())
		return left + left/100 + t.o.Skew // the store's clock may be faster by a hundredth
	}
	if err := slot.check(); err != nil {
		return Result{Slot: slot}, t.failed(err)
	}
	return t.do(ctx, work)
}

// A task is one call of Do or In.
type task struct {
	locks *holdfast.Client
	job   string
	o     Options
	now   func() time.Time // the wall clock
	slot  Slot
	mark  string               // the name that is kept when the work is done
	keep  func() time.Duration // for how long from now, not above zero for not at all
	open  func() bool          // whether the slot is not over yet
}

func newTask(locks *holdfast.Client, job string, o *Options) *task {
	t := &task{locks: locks, job: job, now: time.Now}
	if o != nil {
		t.o = *o
	}
	if t.o.Remember == 0 {
		t.o.Remember = time.Hour
	}
	if t.o.Skew == 0 {
		t.o.Skew = time.Minute
	}
	return t
}

func (t *task) failed(err error) error { return fmt.Errorf("once: job %q: %w", t.job, err) }

func (t *task) do(ctx context.Context, work func(context.Context) error) (Result, error) {
	if err := t.check(); err != nil {
		return Result{Slot: t.slot}, t.failed(err)
	}
	// Most calls find the work done, and need not disturb the lock.
	if result, err := t.look(ctx); err != nil || result.Verdict != Unknown {
		return result, err
	}
	lock, err := t.acquire(ctx)
	if held := (*holdfast.HeldError)(nil); errors.As(err, &held) && (ctx.Err() == nil || t.o.Wait == 0) {
		return Result{Slot: t.slot}.in(Busy, held.Record), nil
	}
	if err != nil {
		return Result{Slot: t.slot}, err
	}
	defer lock.Release()
	result, err := t.look(ctx)
	if err != nil || result.Verdict != Unknown {
		return result, err
	}
	return t.run(ctx, lock, work)
}

// acquire takes the lock of the job, at once or within Options.Wait.
func (t *task) acquire(ctx context.Context) (*holdfast.Lock, error) {
	o := &holdfast.Options{TTL: t.o.TTL, Wait: t.o.Wait, Metadata: t.o.Metadata}
	if o.Wait == 0 {
		return t.locks.TryAcquire(ctx, t.job, o)
	}
	return t.locks.Acquire(ctx, t.job, o)
}

func (t *task) check() error {
	can := t.locks.Guarantees()
	switch {
	case !can.Keep || !can.Lookup:
		return fmt.Errorf("%w: to keep names and to look them up", holdfast.ErrUnsupported)
	case t.o.Wait < 0 || t.o.Remember < 0 || t.o.Skew < 0:
		return fmt.Errorf("%w: Wait, Remember and Skew cannot be negative", holdfast.ErrInvalid)
	case t.o.Remember > driver.MaxTTL || t.o.Skew > driver.MaxTTL/4:
		return fmt.Errorf("%w: Remember is above %v, or Skew above %v", holdfast.ErrInvalid, driver.MaxTTL, driver.MaxTTL/4)
	}
	return nil
}

// look returns the verdict Done or Missed, or Unknown if the work is still to be
// done.
//
// The clock is read after the answer: had the mark been there and run out before
// the store looked, then the slot would be over by every clock now.
func (t *task) look(ctx context.Context) (Result, error) {
	rec, err := t.locks.Lookup(ctx, t.mark)
	result := Result{Slot: t.slot}
	switch {
	case err == nil:
		return result.in(Done, rec), nil
	case !errors.Is(err, holdfast.ErrNotHeld):
		return result, err
	case !t.open():
		result.Verdict = Missed
	}
	return result, nil
}
