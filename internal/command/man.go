package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// manualPage returns the manual page of a command, in the language of man(7).
//
// It does not use cobra/doc: the packages that cobra/doc imports would take as long to start as
// all the rest of "holdfast run" together.
func manualPage(cmd *cobra.Command) string {
	p := &manPage{}
	name := pageName(cmd)
	p.writeLine(`.TH %s 1 "" holdfast "Holdfast manual"`, strings.ToUpper(escapeRoff(name)))
	p.writeSection("NAME")
	p.writeLine(`%s \- %s`, escapeRoff(name), escapeRoff(lowerFirst(cmd.Short)))
	p.writeSection("SYNOPSIS")
	p.writeLine(`.nf`)
	p.writeLine(`\fB%s\fR`, escapeRoff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		p.writeLine(`\fB%s\fR COMMAND`, escapeRoff(cmd.CommandPath()))
	}
	p.writeLine(`.fi`)
	p.writeDescription(cmd.Long)
	p.writeCommands(cmd)
	p.writeOptions(cmd)
	p.writeSection("ENVIRONMENT")
	p.writeProse("Every option can be given by a variable too: HOLDFAST_, and its name in capitals with _ for -. The option wins.")
	if cmd.Example != "" {
		p.writeSection("EXAMPLES")
		p.writeVerbatim(cmd.Example)
	}
	p.writeSeeAlso(cmd)
	return p.text.String()
}

// A manPage builds a manual page.
type manPage struct{ text strings.Builder }

func (p *manPage) writeLine(format string, args ...any) {
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

func (p *manPage) writeSection(title string) { p.writeLine(".SH %s", title) }

// writeDescription writes the exit codes, which the help has last, into a section of their own.
func (p *manPage) writeDescription(long string) {
	text, codes, found := strings.Cut(long, "Exit code: ")
	p.writeSection("DESCRIPTION")
	p.writeParagraphs(text)
	if found {
		p.writeSection("EXIT STATUS")
		first, list, _ := strings.Cut(codes, "\n  ")
		p.writeProse(first)
		p.writeVerbatim("  " + list)
	}
}

// writeParagraphs fills the paragraphs. A paragraph that has an indented line stays as it is.
func (p *manPage) writeParagraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.writeLine(".PP")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			p.writeVerbatim(paragraph)
		} else {
			p.writeProse(paragraph)
		}
	}
}

func (p *manPage) writeProse(text string) {
	for line := range strings.Lines(text) {
		p.writeLine("%s", escapeRoff(strings.TrimSpace(line)))
	}
}

func (p *manPage) writeVerbatim(text string) {
	p.writeLine(".nf")
	for line := range strings.Lines(text) {
		p.writeLine("%s", escapeRoff(strings.TrimRight(line, "\n")))
	}
	p.writeLine(".fi")
}

func (p *manPage) writeCommands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.writeSection("COMMANDS")
	for _, sub := range documentedCommands(cmd) {
		p.writeLine(".TP\n\\fB%s\\fR(1)\n%s.", escapeRoff(pageName(sub)), escapeRoff(sub.Short))
	}
}

func (p *manPage) writeOptions(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	p.writeSection("OPTIONS")
	cmd.NonInheritedFlags().VisitAll(p.writeOption)
	cmd.InheritedFlags().VisitAll(p.writeOption)
}

func (p *manPage) writeOption(f *pflag.Flag) {
	value, about := pflag.UnquoteUsage(f)
	head := `\fB` + escapeRoff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		head = `\fB` + escapeRoff("-"+f.Shorthand) + `\fR, ` + head
	}
	if value != "" {
		head += ` \fI` + escapeRoff(value) + `\fR`
	}
	p.writeLine(".TP\n%s\n%s.", head, escapeRoff(about))
	switch f.DefValue {
	case "", "false", "0s", "[]":
	default:
		p.writeLine("Default: %s.", escapeRoff(f.DefValue))
	}
}

func (p *manPage) writeSeeAlso(cmd *cobra.Command) {
	if cmd.HasParent() {
		p.writeSection("SEE ALSO")
		p.writeLine(`\fB%s\fR(1)`, escapeRoff(pageName(cmd.Parent())))
	}
}

// escapeRoff escapes what man would take for a command or would change.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }
