package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const watchLong = `Watch shows the locks as they come and go, until it is interrupted: on a
terminal as a table that is kept up to date, elsewhere (and with --json) as one
JSON object per line for each change, beginning with the locks that there are.

It looks at the store each --interval, and sees what it finds then: a lock that
is taken and released in between is not shown. "event" says what has changed:
   held   somebody has taken the lock
   taken  somebody has taken it after another, with no time in between
   kept   its holder has released it, but --min-hold is not over
   freed  nobody has it any more; the rest is what was last known
Of a lock that several hold, each hold has lines of its own: others may have the
lock when one of them is freed.

A store that fails later on is reported on standard error and tried again; the
table turns grey then, and its heading says for how long there was no answer.

Exit code: 130 when interrupted (128+n for another signal n), 0 when the reader
of standard output is gone; or
   64  the command line is wrong, or the store cannot list
   69  the store cannot be reached at the start
   74  standard output cannot be written`

const watchExample = `  holdfast watch
  holdfast watch invoices/ --interval 5s
  holdfast watch | jq -r 'select(.event == "freed") | .name'`

// minInterval keeps a mistyped --interval from overloading a server.
const minInterval = 10 * time.Millisecond

// A watchCommand is "holdfast watch" with its flags.
type watchCommand struct {
	*cli
	prefix   string
	interval time.Duration
}

func newWatch(c *cli) *cobra.Command {
	w := &watchCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "watch [PREFIX]",
		Short:   "Show the locks as they come and go",
		Long:    watchLong,
		Example: watchExample,
		Args:    atMostOne("PREFIX"),
		RunE: func(_ *cobra.Command, args []string) error {
			w.prefix = firstArg(args)
			if w.interval < minInterval {
				return usageError(fmt.Errorf("--interval %v is less than %v", w.interval, minInterval), "--interval 1s")
			}
			ctx, stop := interruptContext()
			defer stop()
			return w.inspect(ctx, func(client *holdfast.Client) error {
				return w.watchLocks(ctx, client)
			})
		},
	}
	f := cmd.Flags()
	durationVar(f, &w.interval, "interval", time.Second, "how often to look")
	f.BoolVar(&w.json, "json", false, "one JSON object per line and change, on a terminal\n"+
		"too")
	return cmd
}

// A display shows one snapshot after another.
type display interface {
	showSnapshot(*lockview.Snapshot) error

	// onResume is called when the program goes on after it was suspended.
	onResume()

	// finish is called when there is nothing more to show.
	finish()
}

func (w *watchCommand) newDisplay(client *holdfast.Client) display {
	if !w.json && isTerminal(os.Stdout) && supportsEscapes(os.Stdout) {
		return &screen{
			out:      os.Stdout,
			store:    client.Guarantees().Store,
			interval: w.interval,
			styled:   os.Getenv("NO_COLOR") == "",
		}
	}
	return &eventLines{printNotice: w.printNotice}
}

// watchLocks returns when ctx ends or the reader of the output is gone.
func (w *watchCommand) watchLocks(ctx context.Context, client *holdfast.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a listing that goes on
	resized, resumed := terminalSignals()
	ticks := time.NewTicker(w.interval)
	defer ticks.Stop()
	d := w.newDisplay(client)
	defer d.finish()

	s := lockview.Take(ctx, client, w.prefix, &lockview.Snapshot{})
	if s.Failure() != nil && len(s.Locks) == 0 {
		return exitErrorFor(errors.Join(s.Errs...))
	}
	taken, taking := make(chan *lockview.Snapshot, 1), false
	for changed := true; ; {
		if changed {
			if err := d.showSnapshot(s); err != nil {
				return ignoreClosedPipe(err)
			}
		}
		changed = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-resized:
		case <-resumed:
			d.onResume()
		case <-ticks.C:
			if readerGone(os.Stdout) {
				return nil
			}
			if !taking {
				taking = true
				go func(last *lockview.Snapshot) { taken <- lockview.Take(ctx, client, w.prefix, last) }(s)
			}
			_, changed = s.Stale(time.Now(), w.interval) // its age has
		case s = <-taken:
			taking = false
		}
		if ctx.Err() != nil {
			return ctx.Err() // the end may have made the snapshot incomplete
		}
	}
}

// ignoreClosedPipe returns nil for the error of a reader that has closed its end.
func ignoreClosedPipe(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
