package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// completionTimeout is how long the completion of a name may take after a press of the tab key.
const completionTimeout = 2 * time.Second

const completionLong = `Completion prints a script that makes the tab key complete commands, flags, and
the names of locks, which it asks the store for.

   bash        source <(holdfast completion bash)
   zsh         source <(holdfast completion zsh)       # after compinit
   fish        holdfast completion fish | source
   powershell  holdfast completion powershell | Out-String | Invoke-Expression

Put that line into ~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish or $PROFILE.`

func newCompletion(c *cli) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	form := "holdfast completion " + strings.Join(shells, "|")
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print a script that completes commands and names of locks",
		Long:      completionLong,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("want one shell, got %d", len(args)), form)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.finalError(cmd.Context(), printCompletion(cmd.Root(), args[0], form))
		},
	}
}

func printCompletion(root *cobra.Command, shell, form string) error {
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(os.Stdout, true)
	case "zsh":
		err = root.GenZshCompletion(os.Stdout)
	case "fish":
		err = root.GenFishCompletion(os.Stdout, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(os.Stdout)
	default:
		return usageError(fmt.Errorf("there is no completion for %q", shell), form)
	}
	if err != nil {
		return &exitError{exitOutput, err, ""}
	}
	return nil
}

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
	names, err := c.lookUpNames(prefix)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) lookUpNames(prefix string) ([]cobra.Completion, error) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	var names []cobra.Completion
	err := c.inspect(ctx, func(client *holdfast.Client) error {
		locks, errs := lockview.List(ctx, client, prefix)
		for _, rec := range locks {
			if lockview.Readable(rec.Name) == rec.Name {
				names = append(names, cobra.CompletionWithDesc(rec.Name, lockview.Readable(rec.Holder)))
			}
		}
		if len(names) == 0 {
			return errors.Join(errs...)
		}
		return nil
	})
	return names, err
}
