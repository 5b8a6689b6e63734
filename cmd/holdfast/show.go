package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

const showLong = `Show tells who holds a lock, since when, and for how long the store keeps it
unless its holder renews it. It is a picture of the past: do not take "nobody" for
"it is mine now".

Exit code: 0 if the lock is held, or kept after its release (--min-hold); or
    1  nobody holds it
   64  the command line is wrong
   69  the store cannot be reached, or the record is damaged
   74  standard output cannot be written`

const showExample = `  holdfast show backup
  holdfast show backup --json | jq .token`

// A showCommand is "holdfast show" with its flags.
type showCommand struct {
	*cli
	json bool
}

func newShow(c *cli) *cobra.Command {
	s := &showCommand{cli: c}
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show who holds a lock",
		Long:    showLong,
		Example: showExample,
		Args:    oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			ctx := context.Background()
			return s.inspect(ctx, func(client *holdfast.Client) error {
				return s.run(ctx, client, args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&s.json, "json", false, "one JSON object")
	return cmd
}

func (s *showCommand) run(ctx context.Context, client *holdfast.Client, name string) error {
	rec, err := client.Lookup(ctx, name)
	if err != nil {
		return missed(name, err)
	}
	if s.json {
		return printJSON(viewOf(rec))
	}
	return output(fields(rec))
}

// fields is a record with a line for each thing that is known of it.
func fields(rec holdfast.Record) []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, gap, ' ', 0)
	field := func(title, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", title, text)
		}
	}
	field("name", readable(rec.Name))
	field("state", stateOf(rec))
	field("holder", readable(rec.Holder))
	if rec.Token > 0 {
		field("token", strconv.FormatInt(rec.Token, 10))
	}
	if d, ok := age(rec); ok {
		field("since", fmt.Sprintf("%s, %s ago", rec.Since.UTC().Format(time.RFC3339), brief(d)))
	}
	if rec.Remaining > 0 {
		field("left", leftOf(rec))
	}
	field("metadata", pairs(rec.Metadata))
	_ = w.Flush() // to memory
	return out.Bytes()
}

func leftOf(rec holdfast.Record) string {
	if rec.Kept {
		return brief(rec.Remaining)
	}
	return brief(rec.Remaining) + " unless renewed"
}
