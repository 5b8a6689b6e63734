//go:build unix

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/internal/measure"
)

const benchLong = `Bench measures what locks cost on a store: how long acquire and release take,
how many pairs of them there can be in a second, how soon a lock goes from one
process to another, who gets it how often, and, if the URLs name single servers,
what goes over the network for a pair, a waiter, and a lock that is held.

The locks have names of their own; other locks of the store are left alone, but
feel the load.

Exit code: 0; or
   64  the command line is wrong
   69  the store cannot be reached, or failed
   74  the page cannot be written
  130  interrupted (128+n for another signal n)`

const benchExample = `  holdfast bench
  holdfast bench --store redis://localhost --html redis.html
  holdfast bench --store postgres:// --each 10s --json`

// benchWorker is the hidden subcommand that a worker process runs.
const benchWorker = "bench-worker"

// A benchCommand is "holdfast bench" with its flags.
type benchCommand struct {
	*cli
	each    time.Duration
	workers int
	html    string
}

func newBench(c *cli) []*cobra.Command {
	b := &benchCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure what locks cost on a store",
		Long:    benchLong,
		Example: benchExample,
		Args:    noArgument,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptContext()
			defer stop()
			return b.finalError(ctx, b.measure(ctx))
		},
	}
	f := cmd.Flags()
	durationVar(f, &b.each, "each", 2*time.Second, "how long each measurement takes")
	f.IntVar(&b.workers, "workers", 512, "greatest number of workers")
	f.StringVar(&b.html, "html", "", "write the report to this `FILE` as a page, too")
	f.BoolVar(&b.json, "json", false, "print the report as JSON; durations are in nanoseconds")
	worker := &cobra.Command{
		Use:    benchWorker,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := measure.Serve(os.Stdin, os.Stdout, measure.Opener(openStores).ServeStore); err != nil {
				return &exitError{exitUnavailable, err, ""}
			}
			return nil
		},
	}
	return []*cobra.Command{cmd, worker}
}

func (b *benchCommand) measure(ctx context.Context) error {
	if b.each <= 0 || b.workers < 1 {
		return usageError(errors.New("--each is above zero, and --workers at least 1"), "holdfast bench --help")
	}
	if err := b.store.checkURLs(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return &exitError{exitUnavailable, err, ""}
	}
	report, err := measure.Run(ctx, measure.Options{
		Stores: b.store.urls, Open: openStores,
		Worker: func() *exec.Cmd { return exec.Command(self, benchWorker) },
		Each:   b.each, Most: b.workers,
		Progress: b.progress(),
	})
	b.eraseProgress()
	if err != nil {
		return exitErrorFor(err)
	}
	if err := b.printReport(report); err != nil {
		return &exitError{exitOutput, err, ""}
	}
	return nil
}

func (b *benchCommand) printReport(report *measure.Report) error {
	if b.html != "" {
		page, err := os.Create(b.html)
		if err != nil {
			return err
		}
		if err := errors.Join(report.WritePage(page), page.Close()); err != nil {
			return err
		}
	}
	if b.json {
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	return report.Write(os.Stdout)
}

// onTerminal reports whether progress is shown.
func (c *cli) onTerminal() bool { return !c.quiet && isTerminal(os.Stderr) }

// progress returns a function that shows on a terminal what is measured, nil without a
// terminal.
func (b *benchCommand) progress() func(string) {
	if !b.onTerminal() {
		return nil
	}
	return func(what string) {
		b.eraseProgress()
		_, _ = fmt.Fprintf(os.Stderr, "%s ... ", what)
	}
}

// eraseProgress erases the line of progress.
func (c *cli) eraseProgress() {
	if c.onTerminal() {
		_, _ = fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
