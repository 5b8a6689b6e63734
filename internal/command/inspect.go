package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// logger returns a logger for what is of a level or above. Under --quiet it writes nothing.
func (c *cli) logger(w io.Writer, level slog.Level) *slog.Logger {
	if c.quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// announceDelay is how long a command waits before it reports that it waits.
const announceDelay = 2 * time.Second

// config returns the configuration of a client. If --verbose is given, its log has what happens to
// its locks. Otherwise it reports on a terminal, and under CI, whom it waits for; and everywhere
// that it waits for the run whose command it is, which would look like a hang.
func (c *cli) config(w io.Writer) *holdfast.Config {
	config := &holdfast.Config{MaxOutage: c.maxOutage}
	if c.verbose {
		config.Logger = c.logger(w, slog.LevelDebug)
	}
	around := os.Getenv("HOLDFAST_HOLDER")
	var report *time.Timer // of the one lock that a subcommand waits for
	config.Hooks.Event = func(_ context.Context, e holdfast.Event) {
		switch {
		case e.Kind == holdfast.EventWaiting && around != "" && e.By.Holder == around:
			c.notice(w, "waiting for %q, which the run around this one holds until this one ends", e.Name)
		case e.Kind == holdfast.EventWaiting && !c.verbose && (isTerminal(os.Stderr) || underCI()):
			report = time.AfterFunc(announceDelay, func() { c.notice(w, "waiting for %v", *e.By) })
		case e.Kind == holdfast.EventWaited && report != nil:
			report.Stop()
		}
	}
	return config
}

// underCI reports whether a service for continuous integration runs this process. Such services set
// CI to true or to a name. A wait without output looks like a hang there. cron sets no such
// variable, and mails what is on standard error even of a wait that ends well.
func underCI() bool { return !slices.Contains([]string{"", "0", "false"}, os.Getenv("CI")) }

// onStore returns the RunE of a subcommand that does work with a client.
func (c *cli) onStore(work func(context.Context, *holdfast.Client, []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		return c.inspect(func(ctx context.Context, client *holdfast.Client) error { return work(ctx, client, args) })
	}
}

// inspect runs work with a client. The client holds no lock at the end.
func (c *cli) inspect(work func(context.Context, *holdfast.Client) error) error {
	return interruptible(func(ctx context.Context) error {
		client, err := c.store.openClient(ctx, c.config(os.Stderr))
		if err != nil {
			return err
		}
		defer client.Close()
		return work(ctx, client)
	})
}

// interruptGrace is how long a program may take to end after a signal: to give back a lock, for
// instance.
const interruptGrace = 10 * time.Second

// interruptible runs work with a context that a signal ends. The error has an exit code, or is the
// signal. A second signal ends the program, and so does the first if work still waits for something
// then, a reader of the output for instance.
func interruptible(work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) { // as under nohup
			signal.Notify(signals, sig)
		}
	}
	go func() {
		select {
		case sig := <-signals:
			cancel(&supervise.Interrupt{Signal: sig.(syscall.Signal)})
			time.AfterFunc(interruptGrace, func() { supervise.EndBy(sig.(syscall.Signal)) })
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	err := work(ctx)
	var interrupt *supervise.Interrupt
	switch {
	case err == nil:
		return nil
	case errors.As(context.Cause(ctx), &interrupt):
		return interrupt
	}
	return exitErrorFor(err)
}

// lookupError gives the error of a look at a single lock its exit code: that nobody holds it has
// one of its own.
func lookupError(name string, err error) error {
	if errors.Is(err, holdfast.ErrNotHeld) {
		return &exitError{exitNobody, fmt.Errorf("nobody holds %q", name), ""}
	}
	return err
}

// arguments checks how many arguments a subcommand gets: from least to most.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return usageError(fmt.Errorf("want %s, got %d", []string{"no argument", "one argument"}[most], len(args)), "holdfast "+cmd.Use)
	}
}
