package gocronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/once"
)

// NewLocker returns a locker for a job whose ticks follow each other at that
// interval: see [once.Tick]. The lock has the name of the job (gocron.WithName).
// It works for a whole scheduler, too, if all its jobs have that interval.
//
// For a job at irregular moments, such as a cron line for working days, the
// interval is the least time between two of them.
//
// The options are those of package once; Wait is best left at 0, since gocron
// waits for the locker. A locker is also told whenever a tick is not run, by the
// error of the job's event listener AfterLockError: a [NotRunError] says why.
func NewLocker(locks *holdfast.Client, interval time.Duration, o *once.Options) gocron.Locker {
	return &locker{locks: locks, interval: interval, o: o}
}

// A NotRunError says why a job is not run at a tick: it was run by another
// replica, or is being run.
type NotRunError struct {
	Result once.Result
}

func (e *NotRunError) Error() string { return "gocronlock: not run here: " + e.Result.String() }

type locker struct {
	locks    *holdfast.Client
	interval time.Duration
	o        *once.Options
}

// Lock implements [gocron.Locker].
func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	r := &run{begun: make(chan struct{}), over: make(chan struct{}), ended: make(chan struct{})}
	// Gocron ends the context of a job that is removed while it runs; whether
	// its run counts as done is not to depend on that.
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(r.ended)
		r.result, r.err = once.In(ctx, l.locks, job, once.Tick(time.Now(), l.interval), l.o, r.work)
	}()
	select {
	case <-r.begun:
		return r, nil
	case <-r.ended:
	}
	if r.err != nil {
		return nil, fmt.Errorf("gocronlock: %w", r.err)
	}
	return nil, &NotRunError{Result: r.result}
}

// A run is a run of a job by gocron, made into one of package once.
type run struct {
	begun  chan struct{} // closed when gocron may run the job
	over   chan struct{} // closed when it has
	ended  chan struct{} // closed when result and err are set
	result once.Result
	err    error
}

func (r *run) work(context.Context) error {
	close(r.begun)
	<-r.over
	return nil
}

// Unlock implements [gocron.Lock].
func (r *run) Unlock(context.Context) error {
	close(r.over)
	<-r.ended
	return r.err
}
