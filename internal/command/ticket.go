package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

// ticketEnv is where renew and release find a ticket that is not on the command line.
const ticketEnv = "HOLDFAST_TICKET"

func newRenew(c *cli) *cobra.Command {
	var ttl time.Duration
	cmd := c.ticketCommand("renew", func(ctx context.Context, client *holdfast.Client, ticket holdfast.Ticket) error {
		if ttl != 0 {
			if err := checkTTL(ttl); err != nil {
				return err
			}
		}
		lock, err := client.Adopt(ctx, ticket, &holdfast.Options{TTL: ttl, NoRenew: true})
		if err == nil {
			_, err = lock.HandOver() // to the owner of the ticket
		}
		return err
	})
	cmd.Short = "Prolong a lock by its ticket"
	cmd.Long = `Renew makes a lock last at least until --ttl from now. TICKET is what "holdfast
acquire" has printed; with - it is read from standard input, and without one
taken from HOLDFAST_TICKET: there it is not seen in the list of processes.

Exit code: 0 when the lock is renewed, 1 if it is no longer held under this
ticket, 69 if the store cannot be reached: it may be renewed or not.`
	cmd.Example = `  holdfast renew "$ticket" --ttl 1h
  holdfast renew - <ticket-file`
	durationVar(cmd.Flags(), &ttl, "ttl", 0, "for how long from now (default as long as it was acquired for)")
	return cmd
}

func newRelease(c *cli) *cobra.Command {
	cmd := c.ticketCommand("release", func(ctx context.Context, client *holdfast.Client, ticket holdfast.Ticket) error {
		lock, err := client.Adopt(ctx, ticket, &holdfast.Options{NoRenew: true})
		if err != nil {
			return err
		}
		return lock.Release()
	})
	cmd.Short = "Give back a lock by its ticket"
	cmd.Long = `Release gives back a lock that "holdfast acquire" has taken. TICKET is what that
has printed; with - it is read from standard input, and without one taken from
HOLDFAST_TICKET: there it is not seen in the list of processes.

Exit code: 0 when the lock is released, 1 if it was no longer held under this
ticket, 69 if the store cannot be reached: it is free after its TTL then.`
	cmd.Example = `  holdfast release "$ticket"
  holdfast release - <ticket-file`
	return cmd
}

// methodName is what errors of package holdfast begin with.
var methodName = regexp.MustCompile("^(adopt|hand over)")

// ticketCommand creates a subcommand that does something with a ticket.
func (c *cli) ticketCommand(verb string, do func(context.Context, *holdfast.Client, holdfast.Ticket) error) *cobra.Command {
	var ticket holdfast.Ticket
	return &cobra.Command{
		Use:  verb + " [TICKET | -]",
		Args: arguments(0, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			ticket, err = readTicket(strings.Join(args, ""), os.Stdin)
			return err
		},
		RunE: c.onStore(func(ctx context.Context, client *holdfast.Client, _ []string) error {
			err := do(ctx, client, ticket)
			if err == nil {
				return nil
			}
			e := exitErrorFor(err)
			if errors.Is(err, holdfast.ErrNotHeld) || errors.Is(err, holdfast.ErrLost) {
				e.code = exitNobody
			}
			e.err = errors.New(methodName.ReplaceAllString(withoutPrefix(e.err), verb))
			return e
		}),
	}
}

// readTicket returns the ticket that the argument of the command line means.
func readTicket(arg string, stdin io.Reader) (holdfast.Ticket, error) {
	switch arg {
	case "-":
		line, err := bufio.NewReader(stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", usageError(fmt.Errorf("standard input: %w", err), "the ticket as an argument, or in "+ticketEnv)
		}
		arg = strings.TrimSpace(line)
	case "":
		arg = os.Getenv(ticketEnv)
	}
	if arg == "" {
		return "", usageError(errors.New("no ticket"), "the ticket as an argument, in "+ticketEnv+", or - for standard input")
	}
	return holdfast.Ticket(arg), nil
}
