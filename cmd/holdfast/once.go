package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

const onceLong = `Once runs the command unless it was begun, by any of those who share the store,
within the last --every. Then it does nothing, says so on standard error, and ends
with 0: so the same line can stand in the crontab of every host.

The time counts from when the lock was taken, by the clock of the store, and not
from midnight: for a job that cron starts once a day say --every 23h, or a run that
begins a second earlier than yesterday's would be left out. A command that fails or
is stopped has run; one whose host has died has not.

In all else it is like "holdfast run": the command and all its descendants are dead
before anyone else can have the lock.

Exit code: that of the command, 128+n if signal n has killed it; 0 if there was
nothing to do; or
   64  the command line is wrong, or the store cannot do it
   69  the store cannot be reached
  121  the lock was lost, and the command was stopped
  122  the command has ended, but the lock had been lost, or its release is
       not confirmed
  126  the command cannot be executed
  127  there is no such command`

const onceExample = `  0 3 * * *  holdfast once nightly --every 23h --store "$LOCKS" -- /usr/local/bin/nightly`

func newOnce(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast once NAME --every 23h -- COMMAND", try: true, once: true}
	cmd := &cobra.Command{
		Use:     "once NAME --every DURATION -- COMMAND [ARGUMENT...]",
		Short:   "Run a command at most once in a period",
		Long:    onceLong,
		Example: onceExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.minHold <= 0 {
				return usage(errors.New("--every must be given, and above 0"), r.form)
			}
			if err := r.read(cmd.Flags(), args); err != nil {
				return err
			}
			return r.run()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&r.minHold, "every", 0, "the period: how long after the begin of a run there is no other")
	r.addFlags(f)
	return cmd
}

// nothingToDo explains why "once" has not run the command.
func (r *runCommand) nothingToDo(err error) *exit {
	var held *holdfast.HeldError
	if !errors.As(err, &held) {
		return &exit{err: err}
	}
	rec := held.Record
	text := fmt.Sprintf("nothing to do: %q", r.name)
	switch {
	case rec.Kept:
		text += " has run already"
		if rec.Remaining > 0 {
			text += ", and may run again in " + brief(rec.Remaining)
		}
	case rec.Holder != "":
		text += " is running: held by " + rec.Holder
	default:
		text += " is running elsewhere"
	}
	return &exit{err: errors.New(text)}
}
