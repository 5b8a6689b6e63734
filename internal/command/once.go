package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/internal/supervise"
	"github.com/holdfast-go/holdfast/once"
)

func newOnce(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast once NAME --cron '0 3 * * *' -- COMMAND", hold: holdFlags{try: true}}
	r.work = r.runOnce
	cmd := &cobra.Command{
		Use:   "once NAME --cron SCHEDULE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command at most once in each slot of time",
		Long: `Once runs the command unless it is running, or has succeeded in the same slot,
on any of the hosts that share the store. Then it does nothing, says so on
standard error, and ends with 0: so the same line can stand in the crontab of
every host.

With --cron the slot lasts from one moment of the schedule to the next, by the
clock of this host. The hosts must have one time zone, or name it as in
--cron 'TZ=Europe/Berlin 30 2 * * *'. That daily job runs once on each day.
With --slot the caller knows the slot. With --every no run begins within that
time after the begin of one that has succeeded: a daily job would lose a day
when clocks change.

A command that fails, gets a signal that asks for its end, loses its lock, or
whose host dies has not run: the next one that asks runs it. With --at-most-once
it has.

That it was run is kept under the name NAME@START, or NAME/done with --every.
"Holdfast show" shows it, and "holdfast break" forgets it. In all else it is
like "holdfast run".

Exit code: ` + commandExitCodes,
		Example: `  # in the crontab of each host
  HOLDFAST_STORE=redis://db
  0 3 * * *  holdfast once nightly --cron '0 3 * * *' -- ./nightly.sh
  holdfast once import --slot "$SCHEDULED_AT/1h" -- ./import.sh
  holdfast once refresh --every 10m -- ./refresh.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.slots.check(r.form); err != nil {
				return err
			}
			if err := r.parseArgs(cmd.Flags(), args); err != nil {
				return err
			}
			return r.runSupervised()
		},
	}
	f := cmd.Flags()
	r.slots.addTo(f)
	f.BoolVar(&r.atMostOnce, "at-most-once", false, "a run that fails or is stopped counts, too")
	r.addFlags(f)
	return cmd
}

// errCommandFailed is the error of a run that does not count as done.
var errCommandFailed = errors.New("the command has failed")

// runOnce runs the command unless that was done in the same slot.
func (r *runCommand) runOnce(sup *supervise.Supervisor, client *holdfast.Client, path string) *exitError {
	options := &once.Options{TTL: r.ttl, MaxHold: r.maxHold, AtMostOnce: r.atMostOnce, Metadata: r.meta}
	slot, err := r.slots.at(time.Now())
	if err != nil {
		return usageError(err, r.form)
	}
	var result supervise.Result
	var notRun error
	var acquired time.Time
	var length time.Duration // of the hold
	work := func(ctx context.Context) error {
		acquired = time.Now()
		result, notRun = r.runUnderLock(sup, client, holdfast.FromContext(ctx), path)
		length = time.Since(acquired)
		if notRun != nil {
			return notRun
		}
		if result.Code != 0 || result.Stopped || result.Abandoned || result.Signal != 0 {
			return errCommandFailed
		}
		return nil
	}
	var run once.Result
	if r.slots.every > 0 {
		run, err = once.Within(sup.Context(), client, r.name, r.slots.every, options, work)
	} else {
		// The clocks of hosts may be apart by the length of a slot, so that there are two records
		// of a job at most.
		options.Skew = min(max(time.Minute, slot.End.Sub(slot.Start)), 24*time.Hour)
		run, err = once.In(sup.Context(), client, r.name, slot, options, work)
	}
	switch held := !acquired.IsZero(); {
	case !held && err != nil:
		return r.acquireFailed(sup, err)
	case run.Verdict == once.Missed && r.slots.schedule != nil && !time.Now().Before(slot.End):
		return r.runOnce(sup, client, path) // the next slot has begun meanwhile
	case run.Verdict == once.Missed:
		return usageError(fmt.Errorf("nothing was run: the slot %s is over, or began nearly a year ago", slotText(slot)), "a slot that ends later, or is shorter")
	case !held:
		return &exitError{err: errors.New(r.nothingToDo(run))}
	case notRun != nil && r.atMostOnce:
		// It has not begun after all. If the store does not answer, the record stays.
		_, _ = client.Break(context.WithoutCancel(sup.Context()), run.Record, 0)
		fallthrough
	case notRun != nil:
		return r.startFailed(notRun)
	}
	if !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, once.ErrNotRecorded) {
		err = nil // that of the command, which its exit code tells
	}
	return r.commandEnded(result, length, err)
}

// slotText shows a slot by the clock of its start.
func slotText(slot once.Slot) string {
	return slot.Start.Format(time.RFC3339) + "/" + slot.End.In(slot.Start.Location()).Format(time.RFC3339)
}

// nothingToDo explains why "once" has not run the command.
func (r *runCommand) nothingToDo(result once.Result) string {
	text := fmt.Sprintf("nothing to do: %q ", r.name)
	again := "holdfast break '" + strings.ReplaceAll(result.Record, "'", `'\''`) + "'"
	switch left := time.Until(result.Until); {
	case result.Verdict == once.Done && !result.Slot.Start.IsZero():
		return text + "has run already in the slot " + slotText(result.Slot) + ", and may run again after: " + again
	case result.Verdict == once.Done && left > 0:
		return text + "has run already, and may run again in " + lockview.ShortDuration(left) + ", or at once after: " + again
	case result.Verdict == once.Done:
		return text + "has run already"
	case result.Holder != "":
		return text + "is running: held by " + result.Holder
	}
	return text + "is running, or its name is kept after a release"
}
