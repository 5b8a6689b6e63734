package command

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

// An acquireCommand is "holdfast acquire" with its flags.
type acquireCommand struct {
	*cli
	ttl  time.Duration
	hold holdFlags
	meta metadata
}

func newAcquire(c *cli) *cobra.Command {
	a := &acquireCommand{cli: c, hold: holdFlags{wait: waitForever}, meta: metadata{}}
	cmd := &cobra.Command{
		Use:   "acquire NAME",
		Short: "Take a lock and print a ticket for it",
		Long: `Acquire takes a lock, prints a ticket for it, and ends. The lock stays taken
until "holdfast release" gets the ticket, or the TTL is over; "holdfast renew"
prolongs it. It is for work whose beginning and end are in different places: two
steps of a pipeline, a job that is handed to another host. For work that one
command does, use "holdfast run", which renews the lock and stops the command if
it is lost.

The lock is not renewed meanwhile, and its expiry is not reported: choose
one that is longer than the work.

Who has the ticket can renew and release the lock. Keep it secret.

Exit code: 0 when the lock is taken, 75 if it is held by another.`,
		Example: `  ticket=$(holdfast acquire deploy --ttl 1h --wait 5m)
  ...
  holdfast release "$ticket"`,
		Args: arguments(1, 1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmp.Or(a.hold.check(cmd.Flags()), checkTTL(a.ttl), a.checkMaxOutage())
		},
		RunE: a.onStore(a.acquireTicket),
	}
	f := cmd.Flags()
	durationVar(f, &a.ttl, "ttl", 10*time.Minute, "when the lock is free again unless it is renewed or released")
	a.hold.addTo(f, "", "")
	a.addMaxOutage(f)
	f.Func("meta", metaUsage, a.meta.set)
	f.BoolVar(&a.json, "json", false, "one JSON object, with the ticket and the token")
	return cmd
}

func (a *acquireCommand) acquireTicket(ctx context.Context, client *holdfast.Client, args []string) error {
	options := &holdfast.Options{TTL: a.ttl, Metadata: a.meta, Detached: true, NoRenew: true}
	lock, err := a.hold.acquire(ctx, client, args[0], options)
	if err != nil {
		return a.hold.explain(err)
	}
	ticket, err := lock.HandOver()
	if err != nil {
		_ = lock.Release()
		return err
	}
	if a.json {
		err = printJSON(struct {
			Name   string          `json:"name"`
			Ticket holdfast.Ticket `json:"ticket"`
			Token  int64           `json:"token,omitempty"`
			Holder string          `json:"holder"`
			TTLMS  int64           `json:"ttl_ms"`
		}{lock.Name(), ticket, lock.Token(), lock.Holder(), a.ttl.Milliseconds()})
	} else {
		err = writeOutput([]byte(ticket + "\n")) // Nothing else of the program shows a ticket.
	}
	if err != nil {
		_, _ = client.Adopt(ctx, ticket, nil) // The end of the client releases it.
	}
	return err
}
