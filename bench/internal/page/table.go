package page

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// table writes the figures of a scenario: a row for each contender, and beside
// the figures that are charted, how many times better Holdfast is.
func table(b *strings.Builder, s *result.Scenario) {
	head := []string{""}
	for _, m := range s.Metrics {
		head = append(head, m.Title)
		if m.Chart {
			head = append(head, "Holdfast is better")
		}
	}
	row(b, head)
	b.WriteString("|---|" + strings.Repeat("--:|", len(head)-1) + "\n")
	ours := Ours(s)
	for _, c := range s.Contenders {
		cells := []string{c.Name}
		if c.Role == "ours" {
			cells[0] = "**" + c.Name + "**"
		}
		for _, m := range s.Metrics {
			cells = append(cells, withSpread(s.Figure(c.Name, m), m))
			if m.Chart {
				cells = append(cells, ratioCell(Ratio(s, m, ours, c.Name)))
			}
		}
		row(b, cells)
	}
	b.WriteString("\n")
	for _, c := range s.Contenders {
		if n := stuck(s, c.Name); n > 0 {
			fmt.Fprintf(b, "%s did not come to an end in %d of %d rounds: it waited for locks that were free.\n\n", c.Name, n, s.Rounds)
		}
	}
}

func stuck(s *result.Scenario, contender string) int {
	n := 0
	for _, sample := range s.Samples {
		if sample.Contender == contender && sample.Stuck {
			n++
		}
	}
	return n
}

func row(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// ratioCell sets off a ratio at which Holdfast loses.
func ratioCell(r float64) string {
	switch {
	case r == 0:
		return ""
	case r < 1:
		return "**" + times(r) + "**"
	}
	return times(r)
}
