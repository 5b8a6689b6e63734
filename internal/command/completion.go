package command

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// completionTimeout is how long the completion of a name may take after a press of the tab key.
const completionTimeout = 2 * time.Second

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
