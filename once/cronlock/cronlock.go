package cronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/once"
)

// Options configure how jobs are run. The zero value, and nil, are good defaults.
type Options struct {
	// Once are the options of package once.
	Once once.Options

	// Context is the parent of the work's contexts; nil means context.Background(). End it to end
	// the work at shutdown: cron.Stop does not end the work.
	Context context.Context

	// Report is called with the outcome of each activation: whether it was run here, if not why,
	// and the error of once.In. nil ignores the outcome.
	Report func(result once.Result, err error)
}

// Job returns a cron.Job that does the work once for each activation of the schedule, over all
// replicas. The context of the work ends when the lock of the job is lost; work that returns an
// error does not count as done.
func Job(locks *holdfast.Client, name string, schedule cron.Schedule, o *Options, work func(context.Context) error) cron.Job {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Context == nil {
		options.Context = context.Background()
	}
	return cron.FuncJob(func() {
		slot, err := Slot(schedule, time.Now())
		var result once.Result
		if err == nil {
			result, err = once.In(options.Context, locks, name, slot, &options.Once, work)
		}
		if options.Report != nil {
			options.Report(result, err)
		}
	})
}

// farthest is how far back Slot searches for an activation: more than the eight years that can lie
// between two days of February 29th.
const farthest = 9 * 366 * 24 * time.Hour

// everyHour are the hours of a cron.SpecSchedule that is active in each of them.
const everyHour = 1<<24 - 1

// Slot returns the slot from the latest activation of the schedule that is not after now until the
// next one. If there was none in nine years, or there is no next one, the error matches
// holdfast.ErrInvalid.
//
// A schedule with particular hours goes by the clock on the wall, in its own time zone or else in
// the one of now. An activation that the change to summer time leaves out is at the moment of the
// change. One that the change back brings twice is the first of the two. So a daily job has one
// slot on each day. A schedule with every hour, such as "0 * * * *", goes by the time that passes.
func Slot(schedule cron.Schedule, now time.Time) (once.Slot, error) {
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return once.Period(now, every.Delay), nil
	}
	now = now.Round(0) // slots are by the wall clock
	if spec, ok := schedule.(*cron.SpecSchedule); ok && spec.Hour&everyHour != everyHour {
		schedule = newWallSchedule(spec, now)
	}
	for back := time.Minute; back <= farthest; back *= 2 {
		start := schedule.Next(now.Add(-back))
		if start.IsZero() || start.After(now) {
			continue
		}
		end := schedule.Next(start)
		for !end.IsZero() && !end.After(now) {
			start, end = end, schedule.Next(end)
		}
		if end.IsZero() {
			break
		}
		return once.Slot{Start: start, End: end}, nil
	}
	return once.Slot{}, fmt.Errorf("cronlock: %w: a schedule without activations", holdfast.ErrInvalid)
}
