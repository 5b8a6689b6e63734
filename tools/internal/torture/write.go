//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("store", r.Store)
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
	r.writeShortest(&b, r.Violations)
	if len(r.Outside) > 0 || len(r.Seen) > 0 { // of the faults that the store does not promise to survive
		fmt.Fprintf(&b, "\noutside of the store's promises, seen %d times\n", len(r.Seen))
		r.writeShortest(&b, r.Seen)
	}
	return b.String()
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

// writeShortest writes the violation with the shortest history in full.
func (r *Report) writeShortest(b *strings.Builder, violations []Violation) {
	if len(violations) == 0 {
		return
	}
	v := violations[0]
	fmt.Fprintf(b, "\n%s: %s\n", v.Kind, v.Text)
	for _, e := range v.Events {
		fmt.Fprintf(b, "  %s\n", e.formatLine(r.runStart))
	}
}

// shortestFirst sorts the violations with the shortest histories first, and those without one last.
func shortestFirst(all []Violation) []Violation {
	return slices.SortedStableFunc(slices.Values(all), func(a, b Violation) int {
		return cmp.Or(cmp.Compare(min(len(b.Events), 1), min(len(a.Events), 1)), cmp.Compare(len(a.Events), len(b.Events)))
	})
}
