package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
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

A store that fails later on is reported on standard error and tried again.

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
	showSnapshot(*snapshot) error

	// onResume is called when the program goes on after it was suspended.
	onResume()

	// finish is called when there is nothing more to show.
	finish()
}

func (w *watchCommand) newDisplay(client *holdfast.Client) display {
	if !w.json && isTerminal(os.Stdout) && supportsEscapes(os.Stdout) {
		return &screen{
			out:   os.Stdout,
			store: client.Guarantees().Store,
			bold:  os.Getenv("NO_COLOR") == "",
		}
	}
	return &eventLines{printNotice: w.printNotice}
}

// watchLocks returns when ctx ends or the reader of the output is gone.
func (w *watchCommand) watchLocks(ctx context.Context, client *holdfast.Client) error {
	signal.Ignore(syscall.SIGPIPE) // so that writing returns an error instead
	resized, resumed := terminalSignals()
	ticks := time.NewTicker(w.interval)
	defer ticks.Stop()
	d := w.newDisplay(client)
	defer d.finish()

	p := w.takeSnapshot(ctx, client, &snapshot{})
	if p.hasOnlyErrors() {
		return exitErrorFor(errors.Join(p.errs...))
	}
	for {
		if err := d.showSnapshot(p); err != nil {
			return ignoreClosedPipe(err)
		}
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
			p = w.takeSnapshot(ctx, client, p)
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

// A snapshot is what the store listed at one moment.
type snapshot struct {
	at    time.Time
	locks []holdfast.Record
	errs  []error
}

func (w *watchCommand) takeSnapshot(ctx context.Context, client *holdfast.Client, last *snapshot) *snapshot {
	locks, errs := listLocks(ctx, client, w.prefix)
	p := &snapshot{time.Now(), locks, errs}
	if len(errs) > 0 {
		p.addMissing(ctx, client, last)
	}
	return p
}

// hasOnlyErrors reports whether the snapshot has no locks, and an error that does not concern a
// single record.
func (s *snapshot) hasOnlyErrors() bool {
	for _, err := range s.errs {
		if !errors.Is(err, holdfast.ErrCorrupt) {
			return len(s.locks) == 0
		}
	}
	return false
}

// addMissing looks up the locks that were in the last snapshot and are missing from a listing
// that had errors: missing does not mean free. A lock that cannot be looked up counts as
// unchanged.
func (s *snapshot) addMissing(ctx context.Context, client *holdfast.Client, last *snapshot) {
	seen := s.locksByName()
	var err error
	for _, rec := range last.locks {
		if _, ok := seen[rec.Name]; ok {
			continue
		}
		if !errors.Is(err, holdfast.ErrUnavailable) { // otherwise the next would fail as well, and take its time
			var now holdfast.Record
			if now, err = client.Lookup(ctx, rec.Name); err == nil {
				rec = now
			}
		}
		if !errors.Is(err, holdfast.ErrNotHeld) {
			s.locks = append(s.locks, rec)
		}
	}
	sortByName(s.locks)
}

func (s *snapshot) locksByName() map[string]holdfast.Record {
	locks := make(map[string]holdfast.Record, len(s.locks))
	for _, rec := range s.locks {
		locks[rec.Name] = rec
	}
	return locks
}
