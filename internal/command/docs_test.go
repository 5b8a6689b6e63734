package command

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePath = "../../docs/cli.md"

var updateReference = flag.Bool("update", false, "write the synopses of "+referencePath+" anew")

// TestReferenceSynopses checks that the manual has the usage, flags, defaults and exit codes that
// the program has. The help is made from the same definitions.
func TestReferenceSynopses(t *testing.T) {
	const end = "<!-- end of synopsis -->\n"
	text := readReference(t)
	root := newRoot(nil)
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range documentedCommands(root) {
		heading := "\n## " + cmd.Name() + "\n"
		before, section, found := strings.Cut(text, heading)
		synopsis, rest, closed := strings.Cut(section, end)
		if !found || !closed || strings.Contains(synopsis, "\n## ") {
			t.Errorf("there is no %q with a %q", heading, end)
			continue
		}
		want := "\n" + synopsisOf(cmd, run) + "\n"
		if synopsis != want && !*updateReference {
			t.Errorf("%s is not current: go test ./internal/command -run %s -update", cmd.Name(), t.Name())
		}
		text = before + heading + want + end + rest
	}
	if *updateReference {
		if err := os.WriteFile(referencePath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// synopsisOf returns the usage of a command, a table of its own flags without those that mean the
// same as in run, and its exit codes.
func synopsisOf(cmd, run *cobra.Command) string {
	var table strings.Builder
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		same := run.Flags().Lookup(f.Name)
		if f.Name == "help" || cmd != run && same != nil && same.Usage == f.Usage && same.DefValue == f.DefValue {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "`" + strings.TrimSpace("--"+f.Name+" "+value) + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		byDefault := "`" + f.DefValue + "`"
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
			byDefault = ""
		}
		table.WriteString("| " + name + " | " + strings.ReplaceAll(usage, "\n", " ") + " | " + byDefault + " |\n")
	})
	synopsis := "```\n" + cmd.UseLine() + "\n```\n"
	if table.Len() > 0 {
		synopsis += "\n| flag | | default |\n|---|---|---|\n" + table.String()
	}
	if _, codes, found := strings.Cut(cmd.Long, "Exit code: "); found {
		synopsis += "\n```\nExit code: " + codes + "\n```\n"
	}
	return synopsis
}

// TestReferenceIsWhole checks that flags of all commands, and those of run in other commands, are
// in the manual.
func TestReferenceIsWhole(t *testing.T) {
	text := readReference(t)
	for _, cmd := range documentedCommands(newRoot(nil)) {
		_, section, ok := strings.Cut(text, "\n## "+cmd.Name()+"\n")
		if !ok {
			t.Errorf("there is nothing about %q", cmd.Name())
		}
		section, _, _ = strings.Cut(section, "\n## ")
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(section, "--"+f.Name) {
				t.Errorf("%s: there is nothing about --%s", cmd.Name(), f.Name)
			}
		})
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, "`--"+f.Name) {
				t.Errorf("there is nothing about --%s", f.Name)
			}
		})
	}
}

// documentedCommands returns the subcommands that have a section.
func documentedCommands(root *cobra.Command) (commands []*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			commands = append(commands, cmd)
		}
	}
	return commands
}

func readReference(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
