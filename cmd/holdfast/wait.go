package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

const waitLong = `Wait returns when nobody holds the lock, without taking it: by then somebody may
have taken it again. It is good for "start when the migration is through"; to do
something while nobody else does, use holdfast run.

Exit code: 0 when the lock is free; or
   64  the command line is wrong
   69  the store cannot be reached, or the record is damaged
   75  it was still held when --timeout was over
  130  interrupted (128+n for another signal n)`

const waitExample = `  holdfast wait migration && ./start-server
  holdfast wait backup --timeout 10m
  holdfast wait backup --timeout 0    # is it free?`

// A waitCommand is "holdfast wait" with its flags.
type waitCommand struct {
	*cli
	timeout patience
}

func newWait(c *cli) *cobra.Command {
	w := &waitCommand{cli: c, timeout: forever}
	cmd := &cobra.Command{
		Use:     "wait NAME",
		Short:   "Wait until nobody holds a lock",
		Long:    waitLong,
		Example: waitExample,
		Args:    oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := interruptible()
			defer stop()
			return w.inspect(ctx, func(client *holdfast.Client) error {
				return w.run(ctx, client, args[0])
			})
		},
	}
	cmd.Flags().Var(&w.timeout, "timeout", "how long to wait: a duration, 0 or forever")
	return cmd
}

func (w *waitCommand) run(ctx context.Context, client *holdfast.Client, name string) error {
	var err error
	if w.verbose {
		if err = isFree(ctx, client, name); errors.Is(err, holdfast.ErrHeld) {
			w.say("%w", err)
		}
	}
	switch w.timeout {
	case 0:
		err = isFree(ctx, client, name)
	case forever:
		err = client.WaitFree(ctx, name)
	default:
		limited, cancel := context.WithTimeout(ctx, time.Duration(w.timeout))
		defer cancel()
		err = client.WaitFree(limited, name)
		if err != nil && limited.Err() != nil {
			err = isFree(ctx, client, name) // which tells who has it
		}
	}
	if err == nil {
		return nil
	}
	e := failure(err)
	if e.code == exitBusy {
		e.try = "--timeout with more time"
	}
	return e
}

// isFree fails with a HeldError if somebody holds the lock.
func isFree(ctx context.Context, client *holdfast.Client, name string) error {
	rec, err := client.Lookup(ctx, name)
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("wait for %q: %w", name, &holdfast.HeldError{Record: rec})
}
