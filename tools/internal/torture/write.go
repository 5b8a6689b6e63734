//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// lineWidth is the width of a text report.
const lineWidth = 80

// Write writes the report as text, 80 columns wide.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("store", r.Store)
	if r.Setup != "" {
		row("servers", r.Setup)
	}
	row("machine", r.Machine)
	row("seed", r.Seed)
	row("time", r.Elapsed.Round(time.Second))
	row("processes", r.Processes)
	row("attempts", r.Attempts)
	row("grants", r.Grants)
	if r.Tolerant > 0 {
		row("with others", fmt.Sprintf("%d, up to %d at a time", r.Tolerant, r.Together))
	}
	if r.Foreign > 0 {
		row("to others", r.Foreign)
	}
	row("longest wait", r.LongestWait.Round(time.Millisecond))
	row("violations", len(r.Violations))
	_ = t.Flush() // to a buffer
	r.writeFaults(&b)
	writeViolations(&b, r.Violations, r.runStart)
	r.writeOutside(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFaults writes a table of the faults that were injected.
func (r *Report) writeFaults(b *strings.Builder) {
	fmt.Fprintf(b, "\n")
	total := 0
	for _, f := range Faults {
		n := r.Faults[f]
		if n == 0 {
			continue
		}
		total += n
		note := ""
		if slices.Contains(r.Outside, f) {
			note = "  outside of what the store promises to survive"
		}
		fmt.Fprintf(b, "%-16s %6d%s\n", f, n, note)
	}
	fmt.Fprintf(b, "%-16s %6d\n", "all faults", total)
}

// writeOutside writes the consequences of the faults that the store, or a client of another kind,
// does not promise to survive.
func (r *Report) writeOutside(b *strings.Builder) {
	if len(r.Outside) == 0 && len(r.Seen) == 0 {
		return
	}
	fmt.Fprintf(b, "\noutside of the store's promises, seen %d times\n", len(r.Seen))
	writeViolations(b, r.Seen[:min(1, len(r.Seen))], r.runStart)
}

// maxShownViolations is how many violations are written in full.
const maxShownViolations = 3

func writeViolations(b *strings.Builder, violations []Violation, runStart time.Duration) {
	for i, v := range violations {
		if i == maxShownViolations {
			fmt.Fprintf(b, "\nand %d more\n", len(violations)-maxShownViolations)
			break
		}
		fmt.Fprintf(b, "\n%s\n", foldLine(v.Kind+": "+v.Text, ""))
		for _, e := range v.Events {
			fmt.Fprintf(b, "%s\n", foldLine("  "+e.formatLine(runStart), strings.Repeat(" ", 16)))
		}
	}
}

// foldLine breaks a text that is wider than a line at spaces. The lines that follow are
// indented.
func foldLine(text, indent string) string {
	var b strings.Builder
	for len(text) > lineWidth {
		at := strings.LastIndexByte(text[:lineWidth], ' ')
		if at <= len(indent) {
			break
		}
		b.WriteString(text[:at] + "\n")
		text = indent + strings.TrimLeft(text[at:], " ")
	}
	return b.String() + text
}

// shortestFirst sorts the violations with the shortest histories first.
func shortestFirst(all []Violation) []Violation {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Violation) int {
		return cmp.Or(cmp.Compare(b.evidenceRank(), a.evidenceRank()), cmp.Compare(len(a.Events), len(b.Events)))
	})
}

// evidenceRank is how much a violation explains: 1 with a history, else 0.
func (v Violation) evidenceRank() int { return min(len(v.Events), 1) }
