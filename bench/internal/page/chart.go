package page

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/bench/internal/result"
)

// The measures of a chart, in pixels.
const (
	chartWidth = 780
	labelWidth = 225
	valueWidth = 170
	barHeight  = 20
	barGap     = 7
	panelHead  = 30
)

// chartStyle has colours that can be read on light and on dark pages alike: the
// ground is the page's, and no viewer has to know which of the two it is.
const chartStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #6e7781 }
.title, .name { font-weight: 600 }
.ours { fill: #2da44e } .rival { fill: #8c959f } .raw { fill: #218bff }
</style>
`

// chart draws the metrics of a scenario that are to be drawn: a panel for each,
// with a bar for each contender, the best first.
func chart(s *result.Scenario) string {
	var panels strings.Builder
	y := 0
	for _, m := range s.Metrics {
		if m.Chart {
			y = panel(&panels, s, m, y)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n",
		chartWidth, y, chartWidth, y)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(s.Group+": "+s.Title))
	b.WriteString(chartStyle)
	b.WriteString(panels.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// A bar is one contender's.
type bar struct {
	contender result.Contender
	figure    result.Figure
}

// panel draws one metric below y, and returns where the next begins.
func panel(b *strings.Builder, s *result.Scenario, m result.Metric, y int) int {
	var bars []bar
	greatest := 0.0
	for _, c := range s.Contenders {
		if f := s.Figure(c.Name, m); f.Known {
			bars = append(bars, bar{c, f})
			greatest = max(greatest, f.Value)
		}
	}
	slices.SortStableFunc(bars, func(a, b bar) int {
		if m.Lower {
			a, b = b, a
		}
		return cmp.Compare(b.figure.Value, a.figure.Value)
	})
	hint := "more"
	if m.Lower {
		hint = "less"
	}
	fmt.Fprintf(b, `<text x="4" y="%d"><tspan class="title">%s</tspan> – %s is better; in brackets, how many times as good Holdfast is</text>`+"\n",
		y+19, html.EscapeString(m.Title), hint)
	y += panelHead
	ours := Ours(s)
	for _, bar := range bars {
		const room = chartWidth - labelWidth - valueWidth
		width := max(2, bar.figure.Value/max(greatest, 1e-9)*room)
		label := number(bar.figure.Value, m.Unit)
		if r := Ratio(s, m, ours, bar.contender.Name); r > 0 {
			label += " (" + times(r) + ")"
		}
		class := "other"
		if bar.contender.Role == "ours" {
			class = "name"
		}
		fmt.Fprintf(b, `<text class="%s" x="%d" y="%d" text-anchor="end">%s</text>`, class, labelWidth-8, y+15, html.EscapeString(bar.contender.Name))
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="3"/>`, bar.contender.Role, labelWidth, y, width, barHeight)
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", labelWidth+width+6, y+15, html.EscapeString(label))
		y += barHeight + barGap
	}
	return y + barGap
}
