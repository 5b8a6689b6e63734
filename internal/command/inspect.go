package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// openClient returns a client for reading locks; it takes none.
func (c *cli) openClient(ctx context.Context) (*holdfast.Client, error) {
	config := &holdfast.Config{MaxOutage: c.maxOutage, Logger: c.newLogger(os.Stderr)}
	client, err := c.store.openClient(ctx, config)
	if err != nil {
		return nil, exitErrorFor(err)
	}
	return client, nil
}

// newLogger returns the Logger that --verbose stands for, nil without it.
func (c *cli) newLogger(w io.Writer) *slog.Logger {
	if !c.verbose || c.quiet {
		return nil
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// messageWriter returns w, or under --quiet a writer that discards everything.
func (c *cli) messageWriter(w io.Writer) io.Writer {
	if c.quiet {
		return io.Discard
	}
	return w
}

// inspect runs work with a client, and returns the error that Main reports.
func (c *cli) inspect(ctx context.Context, work func(*holdfast.Client) error) error {
	client, err := c.openClient(ctx)
	if err == nil {
		err = work(client)
		_ = client.Close() // it holds nothing
	}
	return c.finalError(ctx, err)
}

// finalError returns what Main reports of an error. An interrupt by a signal has no message,
// and neither has any error under --quiet.
func (c *cli) finalError(ctx context.Context, err error) error {
	var interrupt *supervise.Interrupt
	if err != nil && errors.As(context.Cause(ctx), &interrupt) {
		return interrupt
	}
	var e *exitError
	if c.quiet && errors.As(err, &e) {
		return &exitError{code: e.code}
	}
	return err
}

// lookupError is exitErrorFor for a single lock: that the lock is not held has an exit code of
// its own.
func lookupError(name string, err error) error {
	if errors.Is(err, holdfast.ErrNotHeld) {
		return &exitError{exitNobody, fmt.Errorf("nobody holds %q", name), ""}
	}
	return exitErrorFor(err)
}

// printNotice writes one line to standard error, unless under --quiet.
func (c *cli) printNotice(format string, args ...any) {
	if !c.quiet {
		reportError(os.Stderr, &exitError{err: fmt.Errorf(format, args...)})
	}
}

// interruptGrace is how long a program may take to end after a signal: to give back a lock, for
// instance.
const interruptGrace = 10 * time.Second

// interruptContext returns a context that a signal ends, with a supervise.Interrupt as its
// cause. A second signal ends the program, and so does the first if the program still waits for
// something then, a reader of its output for instance.
func interruptContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
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
	return ctx, func() { cancel(nil) }
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
