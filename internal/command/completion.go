package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// completionTimeout is how long the completion of a name may take after a press of the tab key.
const completionTimeout = 2 * time.Second

// completeNames lets the tab key complete the first argument of a subcommand if that is a NAME
// or a PREFIX.
func (c *cli) completeNames(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if strings.Contains(cmd.Use, " NAME") || strings.Contains(cmd.Use, " [PREFIX]") {
			cmd.ValidArgsFunction = c.completeName
		}
	}
}

// completeName returns the names that begin with prefix.
func (c *cli) completeName(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // the command of "run"
	}
	if err := c.store.executeForStore(); err != nil { // --store is known only now
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	err := c.inspect(func(ctx context.Context, client *holdfast.Client) error {
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		locks, errs := lockview.List(ctx, client, prefix)
		for _, lock := range locks {
			if name := lock.Name(); lockview.Readable(name) == name {
				names = append(names, cobra.CompletionWithDesc(name, lockview.Readable(lock[0].Holder)))
			}
		}
		if len(names) == 0 {
			return errors.Join(errs...)
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
