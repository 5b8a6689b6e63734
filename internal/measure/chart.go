//go:build unix

package measure

import (
	"fmt"
	"html"
	"strings"
)

// A Panel is a group of bars on one scale.
type Panel struct {
	Title string
	Note  string // beside the title
	Bars  []Bar
}

// A Bar is a bar of a panel.
type Bar struct {
	Label string  // on its left
	Value float64 // its length
	Text  string  // on its right
	Class string  // its color: "ours", "rival" or "raw"
}

// The sizes of a chart, in pixels.
const (
	chartWidth = 780
	labelWidth = 225
	valueWidth = 170
	barHeight  = 20
	barGap     = 7
	headHeight = 30
)

// chartStyle has colors that can be read on light and on dark pages alike. The background is
// that of the page.
const chartStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #6e7781 }
.title { font-weight: 600 }
.ours { fill: #2da44e } .rival { fill: #8c959f } .raw { fill: #218bff }
</style>
`

// Chart returns an SVG picture of the panels, one below the other.
func Chart(title string, panels []Panel) string {
	var b strings.Builder
	y := headHeight
	for _, p := range panels {
		fmt.Fprintf(&b, `<text x="4" y="%d"><tspan class="title">%s</tspan> %s</text>`+"\n",
			y+19, html.EscapeString(p.Title), html.EscapeString(p.Note))
		y += headHeight
		longest := 1e-9
		for _, bar := range p.Bars {
			longest = max(longest, bar.Value)
		}
		for _, bar := range p.Bars {
			width := max(2, bar.Value/longest*(chartWidth-labelWidth-valueWidth))
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`,
				labelWidth-8, y+15, html.EscapeString(bar.Label))
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="3"/>`,
				bar.Class, labelWidth, y, width, barHeight)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n",
				labelWidth+width+6, y+15, html.EscapeString(bar.Text))
			y += barHeight + barGap
		}
		y += barGap
	}
	const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d"` +
		` viewBox="0 0 %[1]d %[2]d" role="img">` + "\n<title>%[3]s</title>\n%[4]s" +
		`<text class="title" x="4" y="18">%[3]s</text>` + "\n%[5]s</svg>\n"
	return fmt.Sprintf(head, chartWidth, y, html.EscapeString(title), chartStyle, b.String())
}
