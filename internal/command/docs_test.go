package command

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const referencePath = "../../docs/cli.md"

var updateReference = flag.Bool("update", false, "write the synopses of "+referencePath+" anew")

// TestReference checks that the manual has the usage, flags and defaults that the program has, from
// which the help is made; that each exit code in the help of a command is in its table, in a row
// with this command; and that a flag that other commands have, too, is named. No line of the help
// wraps on a terminal.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	codes := map[string]string{} // the commands of each
	for _, match := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \| .* \| (.*) \|$`).FindAllStringSubmatch(text, -1) {
		for code := range strings.SplitSeq(match[1], ", ") {
			codes[code] = match[2]
		}
	}
	root := newRoot(&cli{}, nil)
	run, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() {
			continue
		}
		name := cmd.Name()
		synopsis := regexp.MustCompile("\n## " + name + "\n\n`.*`\n(\n\\| flag \\|.*\n(\\|.*\n)*)?").FindString(text)
		want := "\n## " + name + "\n\n" + synopsisOf(cmd, run)
		switch {
		case synopsis == "":
			t.Errorf("there is no heading and usage of %s", name)
		case synopsis != want && !*updateReference:
			t.Errorf("%s is not current: go test ./internal/command -run %s -update", name, t.Name())
		}
		text = strings.Replace(text, synopsis, want, 1)

		_, section, _ := strings.Cut(text, "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if where := map[bool]string{true: text, false: section}[f.Name == "json" || cmd.InheritedFlags().Lookup(f.Name) != nil]; !strings.Contains(where, "--"+f.Name) {
				t.Errorf("%s: there is nothing about --%s", name, f.Name)
			}
		})
		for line := range strings.Lines(cmd.Long + "\n\n" + cmd.UsageString()) {
			if utf8.RuneCountInString(line) > 81 { // with its end
				t.Errorf("%s: more than 80 columns: %q", name, line)
			}
		}
		_, help, _ := strings.Cut(cmd.Long, "Exit code: ")
		for _, match := range regexp.MustCompile(`\b(\d+)(?:  | if | when | also )`).FindAllStringSubmatch(help, -1) {
			if code := match[1]; code != "130" && !strings.HasPrefix(codes[code], "all") && !strings.Contains(codes[code], "`"+name+"`") {
				t.Errorf("%s: exit code %s is not in the table", name, code)
			}
		}
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
