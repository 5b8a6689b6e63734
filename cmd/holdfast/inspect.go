package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// More exit codes, of the subcommands that look at locks.
const (
	exitNobody = 1  // the lock is not held, or the answer to a question was no
	exitOutput = 74 // standard output, or a file, cannot be written
)

// openClient returns a client for reading locks; it takes none.
func (c *cli) openClient(ctx context.Context) (*holdfast.Client, error) {
	config := &holdfast.Config{MaxOutage: c.maxOutage}
	if c.verbose && !c.quiet {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	client, err := c.store.openClient(ctx, config)
	if err != nil {
		return nil, exitErrorFor(err)
	}
	return client, nil
}

// inspect runs work with a client, and returns the error that main reports.
func (c *cli) inspect(ctx context.Context, work func(*holdfast.Client) error) error {
	client, err := c.openClient(ctx)
	if err == nil {
		err = work(client)
		_ = client.Close() // it holds nothing
	}
	return c.finalError(ctx, err)
}

// finalError returns what main reports of an error. An interrupt by a signal has no message,
// and neither has any error under --quiet.
func (c *cli) finalError(ctx context.Context, err error) error {
	var interrupt *supervise.Interrupt
	if err != nil && errors.As(context.Cause(ctx), &interrupt) {
		return &exitError{code: interrupt.Code()}
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

// interruptContext returns a context that a signal ends, with a supervise.Interrupt as its
// cause. A second signal ends the program.
func interruptContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // as under nohup
			signal.Notify(signals, sig)
		}
	}
	go func() {
		select {
		case sig := <-signals:
			cancel(&supervise.Interrupt{Signal: sig.(syscall.Signal)})
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, func() { cancel(nil) }
}

// oneName checks the arguments of a subcommand that takes a NAME.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Errorf("want one NAME, got %d", len(args)), cmd.CommandPath()+" NAME")
	}
	return nil
}

// atMostOne checks the arguments of a subcommand that takes one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageError(fmt.Errorf("want one %s at most, got %d", what, len(args)), cmd.CommandPath()+" "+what)
		}
		return nil
	}
}

// noArgument checks the arguments of a subcommand that takes none.
func noArgument(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(fmt.Errorf("want no argument, got %q", args[0]), cmd.CommandPath())
	}
	return nil
}

// firstArg returns the only argument, or an empty string.
func firstArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
