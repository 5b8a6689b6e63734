package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

func newShow(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock",
		Long: `Show reports the holder of a lock, since when it is held, for how long the store
keeps it unless its holder renews it, and how many wait in line for it. It is a
snapshot: a lock that is free may be taken by now.

Exit code: 0 if the lock is held, or kept after its release (--min-hold); 1 if
nobody holds it.`,
		Example: `  holdfast show backup
  holdfast show backup --json | jq .token`,
		Args: arguments(1, 1),
		RunE: c.onStore(func(ctx context.Context, client *holdfast.Client, args []string) error {
			records, err := client.Lookup(ctx, args[0])
			if err != nil {
				return lookupError(args[0], err)
			}
			lock := lockview.NewLock(records)
			if c.json {
				return printJSON(lock.View())
			}
			return writeOutput(lockFields(lock))
		}),
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "one JSON object")
	return cmd
}

// lockFields formats a lock, with a line for each known field.
func lockFields(lock lockview.Lock) []byte {
	rec, row := lock[0], recordRow(lock[0])
	rows := [][]string{{"", ""}} // without titles
	field := func(title, text string) {
		if text != "" {
			rows = append(rows, []string{title, text})
		}
	}
	field("name", row[nameColumn])
	field("state", lockview.State(rec))
	field("in use", lock.Usage())
	field("holder", lockview.Readable(rec.Holder))
	if rec.Token > 0 {
		field("token", row[tokenColumn])
	}
	if !rec.Since.IsZero() {
		field("since", fmt.Sprintf("%s, %s ago", rec.Since.UTC().Format(time.RFC3339), row[ageColumn]))
	}
	field("lease", remainingText(rec))
	field("waiting", row[waitingColumn])
	field("metadata", row[metadataColumn])
	for _, other := range lock[1:] {
		field("and", holdLine(other))
	}
	return formatTable(rows, 0)[1:]
}

// holdLine describes one of several holds.
func holdLine(rec holdfast.Record) string {
	row := recordRow(rec)
	text := row[holderColumn] + ", token " + row[tokenColumn]
	text += ", " + row[ageColumn] + " ago, lease " + remainingText(rec)
	if row[metadataColumn] != "" {
		text += ", " + row[metadataColumn]
	}
	return text
}

func remainingText(rec holdfast.Record) string {
	if rec.Kept || rec.Remaining <= 0 {
		return lockview.TimeLeft(rec)
	}
	return lockview.TimeLeft(rec) + " unless renewed"
}
