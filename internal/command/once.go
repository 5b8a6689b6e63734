package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/internal/supervise"
	"github.com/holdfast-go/holdfast/once"
)

const onceLong = `Once runs the command unless it is running, or a run that was begun within the
last --every has succeeded, on any of the hosts that share the store. Then it
does nothing, says so on standard error, and ends with 0: so the same line can
stand in the crontab of every host.

The time counts from when the lock was taken, and not from midnight: for a job
that cron starts once a day say --every 23h, or a run that begins a second
earlier than yesterday's would be left out. A command that fails, gets a signal
that asks for its end, loses its lock, or whose host dies has not run: the next
one that asks runs it. With --at-most-once it has.

That it was run is kept under the name NAME/done, which "holdfast show" shows
and "holdfast break" forgets. Package once does the same for Go programs:
once.Within with the same name shares it.

In all else it is like "holdfast run": the command and all its descendants are
dead before anyone else can have the lock.

Exit code: that of the command, 128+n if signal n has killed it; 0 if there was
nothing to do; or
   64  the command line is wrong, or the store cannot do it
   69  the store cannot be reached
  121  the lock was lost, and the command was stopped
  122  the command has ended, but the lock had been lost, or its release is
       not confirmed
  126  the command cannot be executed
  127  there is no such command`

const onceExample = `  0 3 * * *  holdfast once nightly --every 23h --store "$LOCKS" -- ./nightly.sh`

func newOnce(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast once NAME --every 23h -- COMMAND", try: true, once: true}
	cmd := &cobra.Command{
		Use:     "once NAME --every DURATION [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command at most once in a period",
		Long:    onceLong,
		Example: onceExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.every <= 0 {
				return usageError(errors.New("--every must be given, and above 0"), r.form)
			}
			if r.every > driver.MaxTTL {
				return usageError(fmt.Errorf("--every %v is above %v", r.every, driver.MaxTTL), "--every 365d")
			}
			if err := r.parseArgs(cmd.Flags(), args); err != nil {
				return err
			}
			return r.runSupervised()
		},
	}
	f := cmd.Flags()
	durationVar(f, &r.every, "every", 0, "the period: how long after the begin of a\n"+
		"run there is no other")
	f.BoolVar(&r.atMostOnce, "at-most-once", false, "a run that fails or is stopped counts, too")
	r.addFlags(f)
	return cmd
}

// errCommandFailed is the error of a run that does not count as done.
var errCommandFailed = errors.New("the command has failed")

// runOnce runs the command unless that was done within --every.
func (r *runCommand) runOnce(sup *supervise.Supervisor, client *holdfast.Client, path string) *exitError {
	if can := client.Guarantees(); !can.Keep {
		return usageError(fmt.Errorf("the %s store cannot remember that the command was run", can.Store), "another store")
	}
	options := &once.Options{TTL: r.ttl, MaxHold: r.maxHold, AtMostOnce: r.atMostOnce, Metadata: r.meta}
	var result supervise.Result
	var notRun error
	var acquired time.Time
	var length time.Duration // of the hold
	run, err := once.Within(sup.Context(), client, r.name, r.every, options, func(ctx context.Context) error {
		acquired = time.Now()
		result, notRun = r.runUnderLock(sup, client, holdfast.FromContext(ctx), path)
		length = time.Since(acquired)
		if notRun != nil {
			if r.atMostOnce {
				removeRunRecord(client, r.name)
			}
			return notRun
		}
		if result.Code != 0 || result.Stopped || result.Abandoned || result.Signal != 0 {
			return errCommandFailed
		}
		return nil
	})
	switch held := !acquired.IsZero(); {
	case !held && err != nil:
		return r.acquireFailed(sup, err)
	case !held:
		return &exitError{err: errors.New(r.nothingToDo(run))}
	case notRun != nil:
		return r.startFailed(notRun)
	}
	return r.commandEnded(result, length, r.releaseError(err))
}

// removeRunRecord removes the record of a run that has not begun after all. It is called under
// the lock of the job. If the store does not answer, the record stays.
func removeRunRecord(client *holdfast.Client, name string) {
	const timeout = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, _ = client.Break(ctx, name+recordSuffix, 0)
}

// recordSuffix turns the name of a job into the name of the record of its runs. Package once
// chooses it.
const recordSuffix = "/done"

// releaseError returns err, an error of once.Within, if it concerns the end of the lock or the
// record of the run, and nil otherwise.
func (r *runCommand) releaseError(err error) error {
	for _, bad := range []error{holdfast.ErrLost, holdfast.ErrUnavailable, once.ErrNotRecorded} {
		if errors.Is(err, bad) {
			return err
		}
	}
	return nil
}

// shellWord returns a text as a word for a POSIX shell.
func shellWord(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+,-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// nothingToDo explains why "once" has not run the command.
func (r *runCommand) nothingToDo(result once.Result) string {
	text := fmt.Sprintf("nothing to do: %q", r.name)
	switch {
	case result.Verdict == once.Done:
		text += " has run already"
		if left := time.Until(result.Until); left > 0 {
			text += ", and may run again in " + lockview.ShortDuration(left) + ", or at once after: holdfast break " + shellWord(r.name+recordSuffix)
		}
	case result.Holder != "":
		text += " is running: held by " + result.Holder
	default:
		text += " is running, or its name is kept after a release"
	}
	return text
}
