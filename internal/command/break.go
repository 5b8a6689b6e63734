package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

func newBreak(c *cli) *cobra.Command {
	var yes bool
	var token int64
	cmd := &cobra.Command{
		Use:   "break NAME",
		Short: "End the hold of a lock by force",
		Long: `Break ends the hold of a lock, of any holder, and reports the former holder and
its token. It is for a lock whose holder is known to be dead or wrong. If many
hold the lock it ends all of these holds, with --token one of them.

The holder works on until it is told, at its next renewal at the latest: up to a
third of its TTL. Only a resource that refuses its token is safe meanwhile.

It looks at the hold first and breaks only that one: if the lock has changed
hands since, it breaks nothing. On a terminal it asks in between; elsewhere it
requires --yes.

Exit code: 0 when the lock was broken; or
    1  nobody holds it, or the answer was no
   69  the store cannot be reached: the lock may be broken or not
   75  the lock has changed hands meanwhile, and nothing was broken`,
		Example: `  holdfast break backup
  holdfast break backup --yes --json
  holdfast break downloads --token 1795263959271324`,
		Args: arguments(1, 1),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("token") && token < 1 {
				return usageError(fmt.Errorf("--token %d is below 1", token), "holdfast show "+args[0])
			}
			return nil
		},
		RunE: c.onStore(func(ctx context.Context, client *holdfast.Client, args []string) error {
			return c.breakLock(ctx, client, args[0], token, yes)
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.Int64Var(&token, "token", 0, "break the hold with this `TOKEN`, and no other")
	f.BoolVar(&c.json, "json", false, "report the broken lock as one JSON object")
	return cmd
}

// breakLock breaks the hold with the token, or all holds if the token is 0.
func (c *cli) breakLock(ctx context.Context, client *holdfast.Client, name string, token int64, yes bool) error {
	if !yes && !(isTerminal(os.Stdin) && isTerminal(os.Stderr)) {
		return usageError(errors.New("there is no terminal to ask on whether the lock is to be broken"), "--yes")
	}
	records, err := client.Lookup(ctx, name)
	if err != nil {
		return lookupError(name, err)
	}
	seen := lockview.NewLock(records)
	if token > 0 {
		i := slices.IndexFunc(seen, func(hold holdfast.Record) bool { return hold.Token == token })
		if i < 0 {
			return &exitError{exitBusy, fmt.Errorf("nothing was broken: no hold has the token %d: %v", token, seen[0]), "holdfast show NAME"}
		}
		seen = seen[i : i+1]
	}
	if !yes {
		if err := confirmBreak(ctx, client, seen); err != nil {
			return err
		}
	}
	var broken lockview.Lock
	for _, hold := range seen {
		records, err := client.Break(ctx, name, hold.Token) // with token 0 all holds
		switch {
		case errors.Is(err, holdfast.ErrUnavailable):
			return &exitError{exitUnavailable, fmt.Errorf("%w; it may be broken or not", err), "holdfast show NAME"}
		case err != nil && !errors.Is(err, holdfast.ErrNotHeld):
			return err
		}
		broken = append(broken, records...)
	}
	if len(broken) == 0 {
		return cmp.Or(checkUnchanged(ctx, client, seen), lookupError(name, holdfast.ErrNotHeld))
	}
	if c.json {
		return printJSON(broken.View())
	}
	var out []byte
	for _, hold := range broken {
		hold.Remaining = 0 // of what is over
		out = fmt.Appendf(out, "broken: %v\n", hold)
	}
	return writeOutput(out)
}

// confirmBreak returns nil if the user wants the hold broken, and it is still there.
func confirmBreak(ctx context.Context, client *holdfast.Client, seen lockview.Lock) error {
	_, _ = os.Stderr.Write(lockFields(seen))
	question := "Break it? [y/N] "
	if n := len(seen); n > 1 {
		question = fmt.Sprintf("Break all %d holds? [y/N] ", n)
	}
	_, _ = fmt.Fprint(os.Stderr, "A holder is told at once if the store notifies, else at its next renewal, and works\non until then.\n"+question)
	answer, input := make(chan string, 1), bufio.NewReader(os.Stdin)
	go func() {
		line, _ := input.ReadString('\n') // The end of the input is a no.
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	word := ""
	select {
	case <-ctx.Done():
	case word = <-answer:
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case word != "y" && word != "yes":
		return &exitError{exitNobody, errors.New("nothing was broken"), ""}
	}
	return checkUnchanged(ctx, client, seen)
}

// checkUnchanged returns an error if the hold is over that was seen. It matters most for a hold
// without a token, since Break cannot be told to end only that one.
func checkUnchanged(ctx context.Context, client *holdfast.Client, seen lockview.Lock) error {
	now, err := client.Lookup(ctx, seen.Name())
	if err != nil {
		return lookupError(seen.Name(), err)
	}
	stillThere := func(hold holdfast.Record) bool { return lockview.SameHold(seen[0], hold) }
	if !slices.ContainsFunc(now, stillThere) {
		return &exitError{exitBusy, fmt.Errorf("nothing was broken: meanwhile %v", lockview.NewLock(now)[0]), "again"}
	}
	return nil
}
