package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

const breakLong = `Break ends the hold of a lock, whoever has it, and tells who was cut off and
under which token. It is for a lock whose holder is known to be dead or wrong.

The holder is not asked. It finds out by its next renewal, and works on until
then: up to a third of its TTL. Only a resource that refuses its token is safe
meanwhile.

On a terminal break asks first; elsewhere it wants --yes. If the lock has changed
hands while it asked, it breaks nothing.

Exit code: 0 when the lock was broken; or
    1  nobody holds it, or the answer was no
   64  the command line is wrong, --yes is missing, or the store cannot break
   69  the store cannot be reached (the lock may be broken or not), or the
       record is damaged
   74  standard output cannot be written
   75  the lock has changed hands while we asked`

const breakExample = `  holdfast break backup
  holdfast break backup --yes --json`

// A breakCommand is "holdfast break" with its flags.
type breakCommand struct {
	*cli
	yes, json bool
}

func newBreak(c *cli) *cobra.Command {
	b := &breakCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "break NAME",
		Short:   "End the hold of a lock by force",
		Long:    breakLong,
		Example: breakExample,
		Args:    oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx := context.Background()
			return b.inspect(ctx, func(client *holdfast.Client) error {
				return b.run(ctx, client, args[0])
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&b.json, "json", false, "tell of the broken lock as one JSON object")
	return cmd
}

func (b *breakCommand) run(ctx context.Context, client *holdfast.Client, name string) error {
	if !b.yes {
		if err := b.ask(ctx, client, name); err != nil {
			return err
		}
	}
	rec, err := client.Break(ctx, name)
	if errors.Is(err, holdfast.ErrUnavailable) {
		return &exit{exitUnavailable, fmt.Errorf("%w; it may be broken or not", err), "holdfast show NAME"}
	}
	if err != nil {
		return missed(name, err)
	}
	if b.json {
		return printJSON(viewOf(rec))
	}
	return output(fmt.Appendf(nil, "broken: %q, which %s\n", name, possession(rec, "was", "had been")))
}

// ask returns nil if the user wants the lock broken, and it is still the one that
// he was asked about.
func (b *breakCommand) ask(ctx context.Context, client *holdfast.Client, name string) error {
	if !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
		return usage(errors.New("there is no terminal to ask on whether the lock is to be broken"), "--yes")
	}
	rec, err := client.Lookup(ctx, name)
	if err != nil {
		return missed(name, err)
	}
	_, _ = fmt.Fprintf(os.Stderr, "%q %s.\n"+
		"Its holder is not asked, and works on until its next renewal.\nBreak it? [y/N] ",
		name, possession(rec, "is", "has been"))
	if !answeredYes(os.Stdin) {
		return &exit{exitNobody, errors.New("nothing was broken"), ""}
	}
	now, err := client.Lookup(ctx, name)
	if err != nil {
		return missed(name, err)
	}
	if !sameHold(rec, now) {
		return &exit{exitBusy, fmt.Errorf("nothing was broken: meanwhile %q %s", name, possession(now, "is", "has been")), "again"}
	}
	return nil
}

func answeredYes(from io.Reader) bool {
	line, _ := bufio.NewReader(from).ReadString('\n') // the end of the input is a no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// possession tells who has a lock, in the tense of the verbs.
func possession(rec holdfast.Record, is, hasBeen string) string {
	var text string
	switch {
	case rec.Kept:
		text = is + " kept after its release"
	case rec.Holder == "":
		text = is + " held by somebody unknown"
	default:
		text = is + " held by " + readable(rec.Holder)
	}
	if rec.Token > 0 {
		text += fmt.Sprintf(" under token %d", rec.Token)
	}
	if d, ok := age(rec); ok {
		text += fmt.Sprintf(", and %s so for %s", hasBeen, brief(d))
	}
	if len(rec.Metadata) > 0 {
		text += " (" + pairs(rec.Metadata) + ")"
	}
	return text
}
