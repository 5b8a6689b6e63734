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
	exitNobody = 1  // nobody holds the lock, or the answer to a question was no
	exitOutput = 74 // standard output, or a file, cannot be written
)

// open returns a client that looks at locks and takes none.
func (c *cli) open(ctx context.Context) (*holdfast.Client, error) {
	config := &holdfast.Config{}
	if c.verbose && !c.quiet {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	client, err := c.store.open(ctx, config)
	if err != nil {
		return nil, failure(err)
	}
	return client, nil
}

// inspect does some work with a client, and says how it ended.
func (c *cli) inspect(ctx context.Context, work func(*holdfast.Client) error) error {
	client, err := c.open(ctx)
	if err == nil {
		err = work(client)
		_ = client.Close() // it holds nothing
	}
	return c.ended(ctx, err)
}

// ended is what main is to report of an error. That a signal has interrupted us
// needs no words, and neither does anything under --quiet.
func (c *cli) ended(ctx context.Context, err error) error {
	var interrupt *supervise.Interrupt
	if err != nil && errors.As(context.Cause(ctx), &interrupt) {
		return &exit{code: interrupt.Code()}
	}
	var e *exit
	if c.quiet && errors.As(err, &e) {
		return &exit{code: e.code}
	}
	return err
}

// missed is failure for a single lock: that nobody holds it is an answer with an
// exit code of its own.
func missed(name string, err error) error {
	if errors.Is(err, holdfast.ErrNotHeld) {
		return &exit{exitNobody, fmt.Errorf("nobody holds %q", name), ""}
	}
	return failure(err)
}

// say tells something on one line of standard error, unless under --quiet.
func (c *cli) say(format string, args ...any) {
	if !c.quiet {
		report(os.Stderr, &exit{err: fmt.Errorf(format, args...)})
	}
}

// interruptible returns a context that a signal ends, with the
// supervise.Interrupt as its cause. A second signal ends the program.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // as nohup asks for
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

// oneName is the check of the arguments of a subcommand that takes a NAME.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(fmt.Errorf("want one NAME, got %d", len(args)), cmd.CommandPath()+" NAME")
	}
	return nil
}

// atMostOne is the check of the arguments of a subcommand that can do without.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage(fmt.Errorf("want one %s at most, got %d", what, len(args)), cmd.CommandPath()+" "+what)
		}
		return nil
	}
}

// optional returns the only argument, or nothing.
func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
