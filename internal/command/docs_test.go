package command

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePath = "../../docs/cli.md"

var updateReference = flag.Bool("update", false, "write the synopses of "+referencePath+" anew")

// TestReferenceSynopses checks that the manual has the usage, flags and defaults that the program
// has. The help is made from the same definitions.
func TestReferenceSynopses(t *testing.T) {
	text := readReference(t)
	root := newRoot(&cli{}, nil)
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range documentedCommands(root) {
		synopsis := regexp.MustCompile("\n## " + cmd.Name() + "\n\n`.*`\n(\n\\| flag \\|.*\n(\\|.*\n)*)?").FindString(text)
		want := "\n## " + cmd.Name() + "\n\n" + synopsisOf(cmd, run)
		switch {
		case synopsis == "":
			t.Errorf("there is no heading and usage of %s", cmd.Name())
		case synopsis != want && !*updateReference:
			t.Errorf("%s is not current: go test ./internal/command -run %s -update", cmd.Name(), t.Name())
		}
		text = strings.Replace(text, synopsis, want, 1)
	}
	if *updateReference {
		if err := os.WriteFile(referencePath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// synopsisOf returns the usage of a command, and a table of its own flags without --json and those
// that mean the same as in run.
func synopsisOf(cmd, run *cobra.Command) string {
	var table strings.Builder
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		same := run.Flags().Lookup(f.Name)
		if f.Name == "help" || f.Name == "json" || cmd != run && same != nil && same.Usage == f.Usage && same.DefValue == f.DefValue {
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
	synopsis := "`" + cmd.UseLine() + "`\n"
	if table.Len() > 0 {
		synopsis += "\n| flag | | default |\n|---|---|---|\n" + table.String()
	}
	return synopsis
}

// TestReferenceExitCodes checks that each exit code in the help of a command is in the manual's
// table, in a row with this command.
func TestReferenceExitCodes(t *testing.T) {
	rows := map[string]string{} // by code
	for _, match := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \| .* \| (.*) \|$`).FindAllStringSubmatch(readReference(t), -1) {
		for code := range strings.SplitSeq(match[1], ", ") {
			rows[code] = match[2]
		}
	}
	for _, cmd := range documentedCommands(newRoot(&cli{}, nil)) {
		_, codes, _ := strings.Cut(cmd.Long, "Exit code: ")
		for _, match := range regexp.MustCompile(`\b(\d+)(?:  | if | when | also )`).FindAllStringSubmatch(codes, -1) {
			if code := match[1]; code != "130" && !strings.HasPrefix(rows[code], "all") && !strings.Contains(rows[code], "`"+cmd.Name()+"`") {
				t.Errorf("%s: exit code %s is not in the table", cmd.Name(), code)
			}
		}
	}
}

// TestReferenceIsWhole checks that flags of all commands, and those of run in other commands, are
// in the manual.
func TestReferenceIsWhole(t *testing.T) {
	text := readReference(t)
	for _, cmd := range documentedCommands(newRoot(&cli{}, nil)) {
		_, section, ok := strings.Cut(text, "\n## "+cmd.Name()+"\n")
		if !ok {
			t.Errorf("there is nothing about %q", cmd.Name())
		}
		section, _, _ = strings.Cut(section, "\n## ")
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "json" && !strings.Contains(section, "--"+f.Name) {
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
