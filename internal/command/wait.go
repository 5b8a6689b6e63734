package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/internal/retry"
)

func newWait(c *cli) *cobra.Command {
	timeout := waitForever
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "Wait until nobody holds a lock",
		Long: `Wait returns when nobody holds the lock, without taking it: by then somebody may
have taken it again. It is good for "start when the migration is through"; to do
something while nobody else does, use holdfast run. While others stand in
line for the lock (files, Redis, the table of PostgreSQL, etcd, S3), it goes
from one to the next and is not free in between.

Exit code: 0 when the lock is free, 75 if it was still held when --timeout was
over.`,
		Example: `  holdfast wait migration && ./start-server
  holdfast wait backup --timeout 10m
  holdfast wait backup --timeout 0    # is it free?`,
		Args:    arguments(1, 1),
		PreRunE: func(*cobra.Command, []string) error { return c.checkMaxOutage() },
		RunE: c.onStore(func(ctx context.Context, client *holdfast.Client, args []string) error {
			return c.waitFree(ctx, client, args[0], timeout)
		}),
	}
	cmd.Flags().Var(durationFlag{&timeout, true}, "timeout", "how long to wait: a duration, 0 or forever")
	c.addMaxOutage(cmd.Flags())
	return cmd
}

// lookInterval is the time from one look to the next.
const lookInterval = 250 * time.Millisecond

// waitFree looks at the lock until nobody holds it, for as long as timeout says. It goes on while
// the store does not answer, for --max-outage, but not if the first request is refused.
func (c *cli) waitFree(ctx context.Context, client *holdfast.Client, name string, timeout time.Duration) error {
	var held *holdfast.HeldError
	began := time.Now()
	for lastAnswer := began; ; {
		left := time.Until(began.Add(timeout))
		if timeout == waitForever {
			left = math.MaxInt64
		}
		records, err := client.Lookup(ctx, name)
		switch {
		case errors.Is(err, holdfast.ErrNotHeld):
			return nil
		case err == nil:
			first := held == nil
			held = &holdfast.HeldError{Record: lockview.NewLock(records)[0]}
			if lastAnswer = time.Now(); first && c.verbose && timeout != 0 {
				c.notice(os.Stderr, "wait for %q: %w", name, held)
			}
		case !errors.Is(err, holdfast.ErrUnavailable), held == nil && driver.IsNotApplied(err), time.Since(lastAnswer) > c.maxOutage:
			return err
		}
		switch {
		case left <= 0 && err == nil:
			return &exitError{exitBusy, fmt.Errorf("wait for %q: %w", name, held), "--timeout with more time"}
		case left <= 0:
			return err
		}
		if err := retry.Sleep(ctx, min(lookInterval, left)); err != nil {
			return err
		}
	}
}
