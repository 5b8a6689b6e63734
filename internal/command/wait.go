package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

const waitLong = `Wait returns when nobody holds the lock, without taking it: by then somebody may
have taken it again. It is good for "start when the migration is through"; to do
something while nobody else does, use holdfast run. While others stand in
line for the lock (Redis, the table of PostgreSQL, etcd), it goes from one to
the next and is not free in between.

Exit code: 0 when the lock is free, 75 if it was still held when --timeout was
over.`

const waitExample = `  holdfast wait migration && ./start-server
  holdfast wait backup --timeout 10m
  holdfast wait backup --timeout 0    # is it free?`

func newWait(c *cli) *cobra.Command {
	timeout := waitForever
	cmd := &cobra.Command{
		Use:     "wait NAME",
		Short:   "Wait until nobody holds a lock",
		Long:    waitLong,
		Example: waitExample,
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.checkMaxOutage(); err != nil {
				return err
			}
			ctx, stop := interruptContext()
			defer stop()
			return c.inspect(ctx, func(client *holdfast.Client) error {
				return c.waitFree(ctx, client, args[0], timeout)
			})
		},
	}
	waitVar(cmd.Flags(), &timeout, "timeout", "", "how long to wait: a duration, 0 or\n"+
		"forever")
	c.addMaxOutage(cmd.Flags())
	return cmd
}

func (c *cli) waitFree(ctx context.Context, client *holdfast.Client, name string, timeout time.Duration) error {
	var err error
	if c.verbose {
		if err = checkFree(ctx, client, name); errors.Is(err, holdfast.ErrHeld) {
			c.printNotice("%w", err)
		}
	}
	switch timeout {
	case 0:
		err = checkFree(ctx, client, name)
	case waitForever:
		err = c.lookUntilFree(ctx, client, name)
	default:
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		err = c.lookUntilFree(limited, client, name)
		if err != nil && limited.Err() != nil {
			err = checkFree(ctx, client, name) // which returns the holder
		}
	}
	if err == nil {
		return nil
	}
	e := exitErrorFor(err)
	if e.code == exitBusy {
		e.hint = "--timeout with more time"
	}
	return e
}

// lookInterval is the time from one look to the next.
const lookInterval = 250 * time.Millisecond

// lookUntilFree looks at the lock until nobody holds it. It goes on while the store does not
// answer, for --max-outage, but not if the first request is refused.
func (c *cli) lookUntilFree(ctx context.Context, client *holdfast.Client, name string) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	lastAnswer, answered := time.Now(), false
	for {
		err := checkFree(ctx, client, name)
		switch {
		case errors.Is(err, holdfast.ErrHeld):
			lastAnswer, answered = time.Now(), true
		case !errors.Is(err, holdfast.ErrUnavailable), !answered && driver.IsNotApplied(err), time.Since(lastAnswer) > c.maxOutage:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// checkFree returns a HeldError if the lock is held.
func checkFree(ctx context.Context, client *holdfast.Client, name string) error {
	records, err := client.Lookup(ctx, name)
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("wait for %q: %w", name, &holdfast.HeldError{Record: lockview.NewLock(records)[0]})
}
