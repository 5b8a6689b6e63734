//go:build unix

package measure

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// WritePage writes the report as a self-contained HTML page.
func (r *Report) WritePage(w io.Writer) error {
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		return err
	}
	var charts strings.Builder
	charts.WriteString(histogram("Acquire, one worker", r.Acquire))
	charts.WriteString(histogram("Release, one worker", r.Release))
	charts.WriteString(histogram("Hand-over between two processes", r.HandOver))
	if r.Contention != nil {
		charts.WriteString(histogram("Wait of workers that want one lock", r.Contention.Wait))
	}
	rates := Panel{Title: "pairs/s"}
	for _, rate := range r.Rates {
		label := fmt.Sprint(rate.Workers, " workers")
		if rate.Workers == 1 {
			label = "1 worker"
		}
		rates.Bars = append(rates.Bars, Bar{label, rate.PerSecond, fmt.Sprintf("%.0f", rate.PerSecond), "ours"})
	}
	charts.WriteString(Chart("Pairs of acquire and release, each worker with a lock of its own", []Panel{rates}))
	_, err := fmt.Fprintf(w, pageFormat, html.EscapeString(r.Store), r.At.Format(time.RFC3339),
		html.EscapeString(strings.Join(r.settingLines(), "; ")), charts.String(), html.EscapeString(text.String()))
	return err
}

const pageFormat = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Holdfast: %[1]s store</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } pre { overflow-x: auto; font-size: 13px } svg { width: 100%%; height: auto }
</style>
</head>
<body>
<h1>Locks on the %[1]s store</h1>
<p>Measured %[2]s: %[3]s. Figures of one machine at one moment: good for a comparison with others taken in the same way.</p>
%[4]s<pre>%[5]s</pre>
</body>
</html>
`

// histogram draws how many calls took how long, on a logarithmic scale. It returns "" if
// nothing was measured.
func histogram(title string, t *Times) string {
	if t == nil {
		return ""
	}
	panel := Panel{Title: fmt.Sprintf("p50 %v, p99 %v, p99.9 %v, max %v; %d calls",
		roundDuration(t.P50), roundDuration(t.P99), roundDuration(t.P999), roundDuration(t.Max), t.Count)}
	for _, bin := range t.Bins {
		until := binBound(binIndex(bin.From) + 1)
		panel.Bars = append(panel.Bars, Bar{
			fmt.Sprintf("%v to %v", roundDuration(bin.From), roundDuration(until)),
			float64(bin.Count), fmt.Sprint(bin.Count), "ours",
		})
	}
	return Chart(title, []Panel{panel})
}
