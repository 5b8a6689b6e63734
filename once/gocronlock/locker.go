package gocronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/once"
)

// NewLocker returns a locker for a job with ticks that follow each other at that interval: see
// [once.Tick]. The lock has the name of the job (gocron.WithName). The locker also works for a
// whole scheduler if all its jobs have that interval.
//
// Ticks follow each other in UTC. For a job at a time of the day, which clocks that are changed
// shift, and for one at irregular moments use [NewSlotLocker].
//
// The options are those of package once. Wait is best left at 0, since gocron waits for the locker.
// When a tick is not run, the job's event listener AfterLockError receives an error: a
// [NotRunError] contains the reason.
func NewLocker(locks *holdfast.Client, interval time.Duration, o *once.Options) gocron.Locker {
	return NewSlotLocker(locks, func(now time.Time) (once.Slot, error) { return once.Tick(now, interval), nil }, o)
}

// NewSlotLocker returns a locker for a job with slots of any kind. Slot returns the one of a run
// that begins now. For CronJob and DailyJob it calls cronlock.Slot with the same schedule, and with
// now in the time zone of the scheduler (gocron.WithLocation). In all else it is like NewLocker.
func NewSlotLocker(locks *holdfast.Client, slot func(now time.Time) (once.Slot, error), o *once.Options) gocron.Locker {
	return &locker{locks: locks, slot: slot, o: o}
}

// A NotRunError reports why a job is not run at a tick: another replica has run it, or is running
// it.
type NotRunError struct {
	Result once.Result
}

func (e *NotRunError) Error() string { return "gocronlock: not run here: " + e.Result.String() }

type locker struct {
	locks *holdfast.Client
	slot  func(now time.Time) (once.Slot, error)
	o     *once.Options
}

// Lock implements [gocron.Locker].
func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	slot, err := l.slot(time.Now())
	if err != nil {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	r := &jobRun{granted: make(chan struct{}), unlocked: make(chan struct{}), done: make(chan struct{})}
	// Gocron ends the context of a job that is removed while it runs. Whether the run counts as
	// done must not depend on that.
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(r.done)
		r.result, r.err = once.In(ctx, l.locks, job, slot, l.o, func(context.Context) error {
			close(r.granted)
			<-r.unlocked
			return nil
		})
	}()
	select {
	case <-r.granted:
		return r, nil
	case <-r.done:
	}
	if r.err != nil {
		return nil, fmt.Errorf("gocronlock: %w", r.err)
	}
	return nil, &NotRunError{Result: r.result}
}

// A jobRun is a run of a job by gocron, made into one of package once.
type jobRun struct {
	granted  chan struct{} // closed when gocron may run the job
	unlocked chan struct{} // closed when gocron has run the job
	done     chan struct{} // closed when result and err are set
	result   once.Result
	err      error
}

// Unlock implements [gocron.Lock].
func (r *jobRun) Unlock(context.Context) error {
	close(r.unlocked)
	<-r.done
	return r.err
}
