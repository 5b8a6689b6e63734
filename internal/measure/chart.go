//go:build unix

package measure

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode"
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
	leastBars  = 120 // of the longest bars, however wide the texts are
	barHeight  = 20
	barGap     = 7
	headHeight = 30
	lineHeight = 18
	margin     = 4
	labelGap   = 8
	valueGap   = 6
)

// chartStyle has colors that can be read on light and on dark pages alike. The background is
// that of the page.
const chartStyle = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #6e7781 }
.title { font-weight: 600 }
.ours { fill: #2da44e } .rival { fill: #8c959f } .raw { fill: #218bff }
</style>
`

// Chart returns an SVG picture of the panels, one below the other. The labels have a column that is
// as wide as the longest of them. One for which there is no room is cut in its middle.
func Chart(title string, panels []Panel) string {
	labelWidth, valueWidth := 0.0, 0.0
	for _, p := range panels {
		for _, bar := range p.Bars {
			labelWidth = max(labelWidth, margin+textWidth(bar.Label)+labelGap)
			valueWidth = max(valueWidth, valueGap+textWidth(bar.Text)+margin)
		}
	}
	labelWidth = math.Ceil(min(labelWidth, chartWidth-valueWidth-leastBars))
	barsWidth := chartWidth - labelWidth - valueWidth

	var b strings.Builder
	y := 0
	writeHead := func(title, note string) {
		for i, line := range headLines(title, note) {
			if i > 0 {
				y += lineHeight
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", margin, y+19, line)
		}
		y += headHeight
	}
	writeHead(title, "")
	for _, p := range panels {
		writeHead(p.Title, p.Note)
		longest := 1e-9
		for _, bar := range p.Bars {
			longest = max(longest, bar.Value)
		}
		for _, bar := range p.Bars {
			width := max(2, bar.Value/longest*barsWidth)
			fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="end">%s</text>`,
				labelWidth-labelGap, y+15, html.EscapeString(cutMiddle(bar.Label, labelWidth-labelGap-margin)))
			fmt.Fprintf(&b, `<rect class="%s" x="%.0f" y="%d" width="%.1f" height="%d" rx="3"/>`,
				bar.Class, labelWidth, y, width, barHeight)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n",
				labelWidth+width+valueGap, y+15, html.EscapeString(bar.Text))
			y += barHeight + barGap
		}
		y += barGap
	}
	const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d"` +
		` viewBox="0 0 %[1]d %[2]d" role="img">` + "\n<title>%[3]s</title>\n%[4]s%[5]s</svg>\n"
	return fmt.Sprintf(head, chartWidth, y, html.EscapeString(title), chartStyle, b.String())
}

// headLines returns a title in bold and the note behind it, as the SVG of lines that fit into a
// chart.
func headLines(title, note string) (lines []string) {
	const bold = 1.1 // times as wide as plain text
	var titles, notes []string
	width := 0.0
	add := func(words *[]string, word string, wide float64) {
		if width += wide; width > chartWidth-2*margin && len(titles)+len(notes) > 0 {
			lines = append(lines, headLine(titles, notes))
			titles, notes, width = nil, nil, wide
		}
		*words = append(*words, word)
	}
	for _, word := range strings.Fields(title) {
		add(&titles, word, bold*textWidth(word+" "))
	}
	for _, word := range strings.Fields(note) {
		add(&notes, word, textWidth(word+" "))
	}
	return append(lines, headLine(titles, notes))
}

func headLine(titles, notes []string) string {
	line := html.EscapeString(strings.Join(notes, " "))
	if len(titles) > 0 {
		line = `<tspan class="title">` + html.EscapeString(strings.Join(titles, " ")) + "</tspan> " + line
	}
	return strings.TrimSpace(line)
}

// textWidth returns how wide a text is in DejaVu Sans, the widest font of a chart, or a little
// more.
func textWidth(text string) (pixels float64) {
	for _, r := range text {
		em := 0.64
		switch {
		case strings.ContainsRune(" ,.:;'|!/()[]fijlrt-", r):
			em = 0.41
		case strings.ContainsRune("mw%@×…+<>=MW", r):
			em = 1
		case unicode.IsUpper(r):
			em = 0.79
		}
		pixels += 13 * em
	}
	return pixels
}

// cutMiddle returns a text that is not wider than a number of pixels, with an ellipsis in place of
// its middle if it was.
func cutMiddle(text string, pixels float64) string {
	runes := []rune(text)
	for kept := len(runes) - 1; kept > 0 && textWidth(text) > pixels; kept-- {
		text = string(runes[:(kept+1)/2]) + "…" + string(runes[len(runes)-kept/2:])
	}
	return text
}
