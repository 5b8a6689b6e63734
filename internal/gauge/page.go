//go:build unix

package gauge

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// WritePage writes the report as a page of HTML that needs nothing else.
func (r *Report) WritePage(w io.Writer) error {
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, pageHead, html.EscapeString(r.Store), r.At.Format(time.RFC3339))
	b.WriteString(histogram("Acquire, one worker", r.Acquire))
	b.WriteString(histogram("Release, one worker", r.Release))
	if r.HandOver != nil {
		b.WriteString(histogram("Hand-over between two processes", r.HandOver))
	}
	if r.Contention != nil {
		b.WriteString(histogram("Wait of workers who want one lock", r.Contention.Wait))
	}
	b.WriteString(r.rateBars())
	fmt.Fprintf(&b, "<h2>In figures</h2>\n<pre>%s</pre>\n</body>\n</html>\n", html.EscapeString(text.String()))
	_, err := io.WriteString(w, b.String())
	return err
}

const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Holdfast: %[1]s store</title>
<style>
:root { color-scheme: light dark; --bar: #3b6ea5; --ink: #222; --faint: #888; }
@media (prefers-color-scheme: dark) { :root { --bar: #7fb0e6; --ink: #ddd; --faint: #999; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
pre { overflow-x: auto; font-size: 13px; } svg { width: 100%%; height: auto; }
rect { fill: var(--bar); } text { fill: var(--ink); font: 11px system-ui, sans-serif; } .faint { fill: var(--faint); }
line { stroke: var(--faint); }
</style>
</head>
<body>
<h1>Locks on the %[1]s store</h1>
<p>Measured %[2]s. Figures of one machine at one moment: good for a comparison with others taken in the same way.</p>
`

const (
	chartWidth  = 640
	chartHeight = 150
	chartBase   = 118 // where the bars stand
)

// histogram draws how long calls took, on a logarithmic scale.
func histogram(title string, t *Times) string {
	if t == nil {
		return ""
	}
	most := 1
	for _, bin := range t.Bins {
		most = max(most, bin.Count)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", title, chartWidth, chartHeight, title)
	step := float64(chartWidth) / float64(len(t.Bins))
	for i, bin := range t.Bins {
		height := float64(bin.Count) / float64(most) * (chartBase - 14)
		if bin.Count > 0 {
			height = max(height, 1) // what is rare is seen as well
		}
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>from %v: %d</title></rect>`+"\n",
			float64(i)*step+1, chartBase-height, max(step-2, 1), height, readable(bin.From), bin.Count)
		if i%max(1, len(t.Bins)/8) == 0 {
			fmt.Fprintf(&b, `<text class="faint" x="%.1f" y="%d">%v</text>`+"\n", float64(i)*step+1, chartBase+13, readable(bin.From))
		}
	}
	fmt.Fprintf(&b, `<line x1="0" y1="%d" x2="%d" y2="%d"/>`+"\n", chartBase, chartWidth, chartBase)
	fmt.Fprintf(&b, `<text x="0" y="%d">p50 %v, p99 %v, p99.9 %v, max %v; %d calls</text>`+"\n</svg>\n",
		chartHeight-4, readable(t.P50), readable(t.P99), readable(t.P999), readable(t.Max), t.Count)
	return b.String()
}

// rateBars draws how many pairs there are in a second, by the number of workers.
func (r *Report) rateBars() string {
	const row, left = 24, 90
	most := 1.0
	for _, rate := range r.Rates {
		most = max(most, rate.PerSecond)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<h2>Pairs per second, each worker with a lock of its own</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", chartWidth, row*len(r.Rates))
	for i, rate := range r.Rates {
		y := i * row
		width := rate.PerSecond / most * (chartWidth - left - 80)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%d workers</text>`, left-8, y+16, rate.Workers)
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d"/>`, left, y+4, width, row-8)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.0f</text>`+"\n", left+width+6, y+16, rate.PerSecond)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
