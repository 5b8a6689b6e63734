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

// logger returns a logger for what is of a level or above. Under --quiet it writes nothing.
func (c *cli) logger(w io.Writer, level slog.Level) *slog.Logger {
	if c.quiet {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// config returns the configuration of a client. It reports what happens to its locks if --verbose
// is given.
func (c *cli) config(w io.Writer) *holdfast.Config {
	config := &holdfast.Config{MaxOutage: c.maxOutage}
	if c.verbose {
		config.Logger = c.logger(w, slog.LevelDebug)
	}
	return config
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
