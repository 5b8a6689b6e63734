package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

func newLs(c *cli) *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held",
		Long: `Ls lists the locks that are held, and those that are kept after their release
(--min-hold), sorted by name. With a PREFIX it lists those whose names begin so.

AGE is how long ago the lock was taken, LEASE how long the store keeps it unless
its holder renews it, as a holder that lives does. WAITING is how many wait in
line for it, in files, Redis, the table of PostgreSQL, etcd and S3; if nobody
does, there is no such column. On a terminal, long names and lines are cut;
"holdfast show" has all. Elsewhere, and with --json, nothing is cut.

Of postgres+advisory: it lists the keys of all advisory locks of the database
with the sessions that hold them, and those that wait.

With --watch it lists them again each second, with an empty line between, until
it is interrupted; a store that fails later on is reported and tried again.

Exit code: 0, also if there is no lock; 69 also if a record is damaged: what can
be read is listed.`,
		Example: `  holdfast ls
  holdfast ls invoices/ --watch
  holdfast ls --json | jq -r 'select(.until and .remaining_ms < 5000) | .name'`,
		Args: arguments(0, 1),
		RunE: c.onStore(func(ctx context.Context, client *holdfast.Client, args []string) error {
			prefix := strings.Join(args, "")
			if watch {
				return c.watchLocks(ctx, client, prefix)
			}
			return c.printLocks(ctx, client, prefix)
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "list them again each second")
	cmd.Flags().BoolVar(&c.json, "json", false, "one JSON object per line")
	return cmd
}

// watchInterval is how often "ls --watch" lists the locks.
const watchInterval = time.Second

// watchLocks lists the locks until ctx ends or the reader of the output is gone. The first listing
// must succeed.
func (c *cli) watchLocks(ctx context.Context, client *holdfast.Client, prefix string) error {
	for first := true; ; first = false {
		err := c.printLocks(ctx, client, prefix)
		if err == nil && !c.json {
			err = writeOutput([]byte("\n"))
		}
		var failure *exitError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, syscall.EPIPE):
			return nil
		case first && err != nil, errors.As(err, &failure) && failure.code == exitOutput:
			return err
		case err != nil:
			c.notice(os.Stderr, "%w", err)
		}
		_ = retry.Sleep(ctx, watchInterval)
	}
}

func (c *cli) printLocks(ctx context.Context, client *holdfast.Client, prefix string) error {
	if store, ok := client.Store().(*advisory.Store); ok {
		return c.listAdvisory(ctx, store, prefix)
	}
	locks, errs := lockview.List(ctx, client, prefix)
	views := make([]lockview.View, len(locks))
	for i, lock := range locks {
		views[i] = lock.View()
	}
	if err := printList(c, views, lockRows(locks)); err != nil {
		return err
	}
	switch {
	case len(errs) > 0:
		last := len(errs) - 1
		for _, err := range errs[:last] {
			c.notice(os.Stderr, "%w", err)
		}
		return errs[last]
	case len(locks) == 0 && prefix == "":
		c.notice(os.Stderr, "there are no locks in %s", publicURL(c.store.URL()))
	case len(locks) == 0:
		c.notice(os.Stderr, "there are no locks whose names begin with %q in %s", prefix, publicURL(c.store.URL()))
	}
	return nil
}

// printList writes values as JSON, or else the rows of a table of them.
func printList[T any](c *cli, values []T, rows [][]string) error {
	var out bytes.Buffer
	switch {
	case c.json:
		for _, v := range values {
			out.Write(jsonLine(v))
		}
	case len(values) > 0:
		out.Write(formatTable(rows, outputWidth(os.Stdout)))
	}
	return writeOutput(out.Bytes())
}
