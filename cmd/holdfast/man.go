package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const manLong = `Man writes a manual page for holdfast and for each subcommand to a folder, or
prints that of holdfast.`

const manExample = `  holdfast man ~/.local/share/man/man1
  holdfast man | man -l -`

func newMan(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "man [DIR]",
		Short:   "Write the manual pages",
		Long:    manLong,
		Example: manExample,
		Args:    atMostOne("DIR"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.finalError(cmd.Context(), writeOutput([]byte(manualPage(cmd.Root()))))
			}
			return c.finalError(cmd.Context(), c.writeManual(cmd.Root(), args[0]))
		},
	}
}

// writeManual writes a file for each page.
func (c *cli) writeManual(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &exitError{exitOutput, err, "another folder"}
	}
	commands := append([]*cobra.Command{root}, documentedCommands(root)...)
	for _, cmd := range commands {
		path := filepath.Join(dir, pageName(cmd)+".1")
		if err := os.WriteFile(path, []byte(manualPage(cmd)), 0o644); err != nil {
			return &exitError{exitOutput, err, "another folder"}
		}
	}
	c.printNotice("wrote %d pages to %s", len(commands), dir)
	return nil
}

// documentedCommands returns the subcommands that have a page.
func documentedCommands(root *cobra.Command) []*cobra.Command {
	var commands []*cobra.Command
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			commands = append(commands, cmd)
		}
	}
	return commands
}

// pageName returns "holdfast-run" for "holdfast run".
func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}
