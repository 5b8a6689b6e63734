package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore"
)

func newMigrate(c *cli) *cobra.Command {
	var asSQL bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Set up a store in PostgreSQL",
		Long: `Migrate sets up the store, or brings it up to date: for postgres: a schema
with the tables of the locks and their functions, for postgres+advisory: with
tokens the sequence. It may be run again at any time, by many at once; what is
there already is left alone, with the locks in it. A schema that is not fit is
refused, with the reason and what to do. Other stores need no set-up. Then
"holdfast doctor" shows what in the settings of the server endangers locks.

With --print it prints the statements instead, for those who have a tool for
migrations, and asks no server.

Exit code: 64 if the store needs no set-up, or its schema is not fit.`,
		Example: `  holdfast migrate --store postgres://admin@db/app
  holdfast migrate --store 'postgres:?schema=locks' --print > 20261121_locks.sql`,
		Args: arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if asSQL {
				return c.printStatements()
			}
			if err := c.store.checkURLs(); err != nil {
				return err
			}
			return interruptible(func(ctx context.Context) error {
				for _, url := range c.store { // of a quorum each node
					if err := c.migrate(ctx, url); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asSQL, "print", false, "print the SQL for another tool, without a server, and do nothing")
	return cmd
}

// migrate sets up a store.
func (c *cli) migrate(ctx context.Context, url string) error {
	client, err := holdfast.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer client.Close() // it holds nothing
	needs, ok := client.Store().(interface{ Migrate(context.Context) error })
	if !ok {
		return usageError(fmt.Errorf("the %s store needs no set-up", client.Guarantees().Store), "")
	}
	_, before := client.Lookup(ctx, "holdfast-migrate")
	if err := needs.Migrate(ctx); err != nil {
		return err
	}
	done := "is set up"
	if before == nil || errors.Is(before, holdfast.ErrNotHeld) {
		done = "is up to date"
	}
	c.notice(os.Stderr, "the %s store %s", client.Guarantees().Store, done)
	return nil
}

func (c *cli) printStatements() error {
	u, err := url.Parse(c.store.URL())
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return usageError(errors.New("there are statements to print for the store postgres: alone"), "--store postgres:")
	}
	query := driver.NewQuery(&url.URL{RawQuery: u.RawQuery})
	statements, err := pgstore.Migrations(&pgstore.Options{Schema: query.String("schema", "")})
	if err != nil {
		return exitErrorFor(err)
	}
	out := bytes.NewBufferString("-- Holdfast: run it in one transaction.\nBEGIN;\n\n")
	for _, statement := range statements {
		fmt.Fprintf(out, "%s;\n\n", statement)
	}
	out.WriteString("COMMIT;\n")
	return writeOutput(out.Bytes())
}
