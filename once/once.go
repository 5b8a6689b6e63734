package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Options configure how work is run once. The zero value, and nil, are good defaults.
type Options struct {
	// TTL is the time after which the job of a crashed replica is free again. The bounds and the
	// default are those of holdfast.Options.TTL. It has nothing to do with how long the work takes.
	TTL time.Duration

	// Wait is how long to wait for a job that is busy; 0 means not at all.
	Wait time.Duration

	// Remember is how long work passed to Do counts as done after its end; 0 means 1 h. Slots do
	// not use it. At most driver.MaxTTL.
	Remember time.Duration

	// Skew bounds the difference between any two replicas' wall clocks, for work with slots; 0
	// means 1 min. The only cost of a greater value is that marks last longer.
	Skew time.Duration

	// AtMostOnce records that the work is done before it begins. The work is then not repeated,
	// even if it fails or its process crashes. Remember counts from the begin of the work then, and
	// must be longer than the work and any pause of it.
	AtMostOnce bool

	// MaxHold ends a run that takes longer: its context ends, the error matches
	// holdfast.ErrMaxHold, and the run counts only if it was being recorded. 0 means no limit.
	MaxHold time.Duration

	// Metadata is part of the lock of a running job, and shown by lookups of it. The bounds are
	// those of holdfast.Options.Metadata.
	Metadata map[string]string
}

// Do runs a piece of work unless it was done recently (see Options.Remember) or is being done. The
// job is the name of the work, as in "order:42:charge".
//
// The context of the work ends when ctx does and when the lock of the job is lost, with the reason
// as its cause; holdfast.FromContext returns the lock. Work must return soon after that, with an
// error if it has not been done.
//
// Do returns an error
//   - if the store could not be reached,
//   - if the work returned one,
//   - if the lock was not held until the run was recorded (holdfast.ErrLost, or
//     holdfast.ErrReleased after Client.Close or ReleaseAll),
//   - if the release of the lock was not confirmed (holdfast.ErrUnavailable; the run counts all the
//     same),
//   - and if the success of the run could not be recorded (ErrNotRecorded).
//
// If the work was not run for a good reason, the Result contains the reason, and the error is nil.
func Do(ctx context.Context, locks *holdfast.Client, job string, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	t.markName = job + markSuffix
	t.keepMarkFor = func() time.Duration { return t.o.Remember }
	return t.execute(ctx, work)
}

// Within runs a piece of work unless an earlier run has succeeded and the time every of that run is
// not over. It is counted from the begin of the run, and is from driver.MinTTL (10 ms) to
// driver.MaxTTL. Another every counts from the next run on. It is what the command "holdfast once
// --every" does. A run is remembered by the name of the job, as with Do: each sees the runs of the
// other. The clock is the store's, and this host's while the work runs; a run counts for up to the
// Grain of the store's Guarantees longer, and on etcd for longer after a change of its leader. The
// errors are those that Do returns.
func Within(ctx context.Context, locks *holdfast.Client, job string, every time.Duration, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	if every < driver.MinTTL || every > driver.MaxTTL {
		return Result{}, t.wrapError(fmt.Errorf("%w: once within %v, want %v to %v", holdfast.ErrInvalid, every, driver.MinTTL, driver.MaxTTL))
	}
	t.markName = job + markSuffix
	t.keepMarkFor = func() time.Duration { return every - time.Since(t.began) }
	return t.execute(ctx, work)
}

// Every runs a piece of work once in each period; see [Period]. It can be called any number of
// times, for instance by a timer that is shorter than the period. For a job at a time of the day
// use In with the slot of cronlock.Slot: days of UTC are not those of a clock that is changed. The
// errors are those that Do returns.
func Every(ctx context.Context, locks *holdfast.Client, job string, period time.Duration, o *Options, work func(context.Context) error) (Result, error) {
	t := newTask(locks, job, o)
	return t.executeInSlot(ctx, Period(t.now(), period), work)
}

// In runs a piece of work once in a slot. The errors are those that Do returns.
func In(ctx context.Context, locks *holdfast.Client, job string, slot Slot, o *Options, work func(context.Context) error) (Result, error) {
	return newTask(locks, job, o).executeInSlot(ctx, slot, work)
}

// executeInSlot executes a task that does its work once in a slot.
func (t *task) executeInSlot(ctx context.Context, slot Slot, work func(context.Context) error) (Result, error) {
	t.slot = slot
	t.markName = slot.markName(t.job)
	// The mark lasts for MaxTTL at most: a long slot is closed while that is long enough.
	longest := driver.MaxTTL/101*100 - t.o.Skew // the store's clock may be faster by a hundredth
	t.end = slot.End
	if last := slot.Start.Add(longest - t.o.Skew); t.end.After(last) {
		t.end = last
	}
	t.keepMarkFor = func() time.Duration {
		left := t.end.Sub(t.now())
		return left + left/100 + t.o.Skew
	}
	err := slot.validate()
	if now := t.now(); err == nil && t.end.Sub(now) > longest {
		err = fmt.Errorf("%w: the slot begins %v from now", holdfast.ErrInvalid, slot.Start.Sub(now))
	}
	if err != nil {
		return t.result(), t.wrapError(err)
	}
	return t.execute(ctx, work)
}

// A task is one call of Do, Within, Every or In.
type task struct {
	locks *holdfast.Client
	job   string
	o     Options
	now   func() time.Time // the wall clock
	slot  Slot
	end   time.Time // the slot is over then; zero without one
	began time.Time // when the lock was acquired

	markName    string               // the name that is kept when the work is done
	keepMarkFor func() time.Duration // how long from now to keep it; not at all if not above zero
}

func newTask(locks *holdfast.Client, job string, o *Options) *task {
	t := &task{locks: locks, job: job, now: time.Now}
	if o != nil {
		t.o = *o
	}
	t.o.Remember, t.o.Skew = cmp.Or(t.o.Remember, time.Hour), cmp.Or(t.o.Skew, time.Minute)
	return t
}

func (t *task) result() Result { return Result{Slot: t.slot, Record: t.markName} }

func (t *task) wrapError(err error) error { return fmt.Errorf("once: job %q: %w", t.job, err) }

// execute looks for the mark, acquires the lock of the job, and runs the work unless the mark has
// been placed meanwhile.
func (t *task) execute(ctx context.Context, work func(context.Context) error) (Result, error) {
	if err := t.validate(work); err != nil {
		return t.result(), t.wrapError(err)
	}
	// Most calls find the work done, and do not need the lock.
	if result, err := t.lookupMark(ctx); err != nil || result.Verdict != Unknown {
		return result, err
	}
	o := &holdfast.Options{TTL: t.o.TTL, Wait: t.o.Wait, MaxHold: t.o.MaxHold, Metadata: t.o.Metadata}
	acquire := t.locks.Acquire
	if o.Wait == 0 {
		acquire = t.locks.TryAcquire
	}
	lock, err := acquire(ctx, t.job, o)
	if held := (*holdfast.HeldError)(nil); errors.As(err, &held) && (ctx.Err() == nil || t.o.Wait == 0) {
		return t.result().withRecord(Busy, held.Record), nil
	}
	if err != nil {
		return t.result(), err
	}
	defer lock.Release()
	t.began = time.Now()
	result, err := t.lookupMark(ctx)
	if err != nil || result.Verdict != Unknown {
		return result, err
	}
	return t.runLocked(ctx, lock, work)
}

// markSuffix is appended to the name of a job to form the name of its mark, the record of its last
// success.
const markSuffix = "/done"

func (t *task) validate(work func(context.Context) error) error {
	switch {
	case t.locks == nil || work == nil:
		return fmt.Errorf("%w: the Client or the work is nil", holdfast.ErrInvalid)
	case !t.locks.Guarantees().Keep:
		return fmt.Errorf("%w: to keep names and to look them up", holdfast.ErrUnsupported)
	case strings.HasSuffix(t.job, markSuffix):
		return fmt.Errorf("%w: names that end in %q are those of records", holdfast.ErrInvalid, markSuffix)
	case t.o.Wait < 0 || t.o.Remember < 0 || t.o.Skew < 0 || t.o.MaxHold < 0:
		return fmt.Errorf("%w: Wait, Remember, Skew and MaxHold cannot be negative", holdfast.ErrInvalid)
	case t.o.Remember > driver.MaxTTL || t.o.Skew > driver.MaxTTL/4:
		return fmt.Errorf("%w: Remember is above %v, or Skew above %v", holdfast.ErrInvalid, driver.MaxTTL, driver.MaxTTL/4)
	}
	return nil
}

// lookupMark returns the verdict Done or Missed, or Unknown if the work is still to be done.
//
// It reads the clock after the reply of the store. If the mark was placed and had expired before
// the lookup, the slot is over by every replica's clock by then.
func (t *task) lookupMark(ctx context.Context) (Result, error) {
	records, err := t.locks.Lookup(ctx, t.markName)
	result := t.result()
	switch {
	case err == nil:
		return result.withRecord(Done, records[0]), nil
	case !errors.Is(err, holdfast.ErrNotHeld):
		return result, err
	case !t.end.IsZero() && !t.now().Before(t.end):
		result.Verdict = Missed
	}
	return result, nil
}
