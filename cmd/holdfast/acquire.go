package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
)

const acquireLong = `Acquire takes a lock, prints a ticket for it, and ends. The lock stays taken until
"holdfast release" gets the ticket, or the TTL is over; "holdfast renew" prolongs
it. It is for work whose beginning and end are in different places: two steps of a
pipeline, a job that is handed to another host. For work that one command does,
use "holdfast run", which renews the lock and stops the command if it is lost.

Nobody renews the lock meanwhile, and nobody is told when its TTL is over: choose
one that is longer than the work.

Who has the ticket can renew and release the lock. Keep it secret.

Exit code: 0 when the lock is taken; or
   64  the command line is wrong, or the store cannot do it
   69  the store cannot be reached, or the record is damaged
   74  standard output cannot be written (the lock is given back)
   75  the lock is held by another
  130  interrupted (128+n for another signal n)`

const acquireExample = `  ticket=$(holdfast acquire deploy --ttl 1h --wait 5m)
  ...
  holdfast release "$ticket"`

// An acquireCommand is "holdfast acquire" with its flags.
type acquireCommand struct {
	*cli
	ttl  time.Duration
	wait patience
	try  bool
	meta map[string]string
	json bool
}

func newAcquire(c *cli) *cobra.Command {
	a := &acquireCommand{cli: c, wait: forever}
	cmd := &cobra.Command{
		Use:     "acquire NAME",
		Short:   "Take a lock and print a ticket for it",
		Long:    acquireLong,
		Example: acquireExample,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.read(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := interruptible()
			defer stop()
			return a.inspect(ctx, func(client *holdfast.Client) error {
				return a.run(ctx, client, args[0])
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&a.ttl, "ttl", 10*time.Minute, "when the lock is free again unless it is renewed or released")
	f.Var(&a.wait, "wait", "how long to wait for the lock: a duration, 0 or forever")
	f.BoolVar(&a.try, "try", false, "do not wait for the lock, like --wait 0")
	f.StringToStringVar(&a.meta, "meta", nil, "key=value to show with the lock; may be repeated")
	f.BoolVar(&a.json, "json", false, "one JSON object, with the ticket and the token")
	return cmd
}

func (a *acquireCommand) read(flags *pflag.FlagSet) error {
	var err error
	a.try, err = triesOnly(flags, a.try, a.wait)
	return err
}

func (a *acquireCommand) run(ctx context.Context, client *holdfast.Client, name string) error {
	lock, err := a.acquire(ctx, client, name)
	if err != nil {
		e := failure(err)
		if e.code == exitBusy {
			e.try = "--wait with more time"
		}
		return e
	}
	defer lock.Release() // does nothing once it is handed over
	ticket, err := lock.Ticket()
	if err != nil {
		return failure(err)
	}
	if err := a.print(lock, ticket); err != nil {
		return err
	}
	if _, err := lock.HandOver(); err != nil {
		return failure(err)
	}
	return nil
}

func (a *acquireCommand) acquire(ctx context.Context, client *holdfast.Client, name string) (*holdfast.Lock, error) {
	options := &holdfast.Options{TTL: a.ttl, Metadata: a.meta, Detached: true, NoRenew: true}
	if a.try {
		return client.TryAcquire(ctx, name, options)
	}
	if a.wait != forever {
		options.Wait = time.Duration(a.wait)
	}
	return client.Acquire(ctx, name, options)
}

// print is the only place where the program shows a ticket.
func (a *acquireCommand) print(lock *holdfast.Lock, ticket holdfast.Ticket) error {
	if !a.json {
		return output([]byte(ticket + "\n"))
	}
	return printJSON(struct {
		Name   string          `json:"name"`
		Ticket holdfast.Ticket `json:"ticket"`
		Token  int64           `json:"token,omitempty"`
		Holder string          `json:"holder"`
		TTLMS  int64           `json:"ttl_ms"`
	}{lock.Name(), ticket, lock.Token(), lock.Holder(), a.ttl.Milliseconds()})
}
