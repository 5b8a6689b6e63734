package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manualPage is the manual page of a command, in the language of man(7).
//
// It is written here, and not by cobra/doc: the packages that that needs would
// take as long to start as all the rest of "holdfast run" together.
func manualPage(cmd *cobra.Command) string {
	p := &page{}
	name := pageName(cmd)
	p.line(`.TH %s 1 "" holdfast "Holdfast manual"`, strings.ToUpper(roff(name)))
	p.section("NAME")
	p.line(`%s \- %s`, roff(name), roff(lowerFirst(cmd.Short)))
	p.section("SYNOPSIS")
	p.line(`.nf`)
	p.line(`\fB%s\fR`, roff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		p.line(`\fB%s\fR COMMAND`, roff(cmd.CommandPath()))
	}
	p.line(`.fi`)
	p.description(cmd.Long)
	p.commands(cmd)
	p.options(cmd)
	p.section("ENVIRONMENT")
	p.prose("Every option can be given by a variable too: HOLDFAST_, and its name in capitals with _ for -. The option wins.")
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.verbatim(cmd.Example)
	}
	p.seeAlso(cmd)
	return p.text.String()
}

// A page is a manual page in the making.
type page struct{ text strings.Builder }

func (p *page) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

func (p *page) section(title string) { p.line(".SH %s", title) }

// description has the exit codes, which the help has last, in a section of their
// own.
func (p *page) description(long string) {
	text, codes, found := strings.Cut(long, "Exit code: ")
	p.section("DESCRIPTION")
	p.paragraphs(text)
	if found {
		p.section("EXIT STATUS")
		first, list, _ := strings.Cut(codes, "\n  ")
		p.prose(first)
		p.verbatim("  " + list)
	}
}

// paragraphs are filled, but for those that have an indented line: they stay as
// they are.
func (p *page) paragraphs(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line(".PP")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			p.verbatim(paragraph)
		} else {
			p.prose(paragraph)
		}
	}
}

func (p *page) prose(text string) {
	for line := range strings.Lines(text) {
		p.line("%s", roff(strings.TrimSpace(line)))
	}
}

func (p *page) verbatim(text string) {
	p.line(".nf")
	for line := range strings.Lines(text) {
		p.line("%s", roff(strings.TrimRight(line, "\n")))
	}
	p.line(".fi")
}

func (p *page) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.section("COMMANDS")
	for _, sub := range documented(cmd) {
		p.line(".TP\n\\fB%s\\fR(1)\n%s.", roff(pageName(sub)), roff(sub.Short))
	}
}

func (p *page) options(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	p.section("OPTIONS")
	cmd.NonInheritedFlags().VisitAll(p.option)
	cmd.InheritedFlags().VisitAll(p.option)
}

func (p *page) option(f *pflag.Flag) {
	value, about := pflag.UnquoteUsage(f)
	head := `\fB` + roff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		head = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + head
	}
	if value != "" {
		head += ` \fI` + roff(value) + `\fR`
	}
	p.line(".TP\n%s\n%s.", head, roff(about))
	switch f.DefValue {
	case "", "false", "0s", "[]":
	default:
		p.line("Default: %s.", roff(f.DefValue))
	}
}

func (p *page) seeAlso(cmd *cobra.Command) {
	if cmd.HasParent() {
		p.section("SEE ALSO")
		p.line(`\fB%s\fR(1)`, roff(pageName(cmd.Parent())))
	}
}

// roff spells out what man would take for a command or change on its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }
