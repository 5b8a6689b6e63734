//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A picture shows the holds around a violation, and what was done meanwhile: a
// row for each server and process that was harmed, and for each worker.
type picture struct {
	Kind, Text    string
	Width, Height int
	Bars          []bar
	Rows, Ticks   []label

	from, to time.Duration
	rows     map[string]int // the number of each
}

// A bar is a time in a row. All measures are in pixels.
type bar struct {
	X, Y, W, H int
	Class      string
	Text       string // in it, or after it
	TextX      int
	Title      string // when it is pointed at
}

// A label is a text beside a row, or below.
type label struct {
	X, Y int
	Text string
}

// The measures of a picture.
const (
	pictureWidth = 1000
	marginLeft   = 90
	marginRight  = 40
	letter       = 7
	rowHeight    = 22
	mostRows     = 60
)

// draw makes a page for the first violation that has a history.
func (h *history) draw(violations []Violation, dir string) (string, error) {
	i := slices.IndexFunc(violations, func(v Violation) bool { return len(v.holds) > 0 })
	if i < 0 {
		return "", nil
	}
	path := filepath.Join(dir, "history.html")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = page.Execute(file, h.picture(violations[i]))
	return path, cmp.Or(err, file.Close())
}

// picture draws the time from a little before the first hold was got until the
// last one was over.
func (h *history) picture(v Violation) *picture {
	p := &picture{Kind: v.Kind, Text: v.Text, from: never, rows: map[string]int{}, Width: pictureWidth}
	for _, a := range v.holds {
		p.from, p.to = min(p.from, a.got), max(p.to, a.got, min(a.relied, a.got+10*time.Second), a.freed)
	}
	margin := max((p.to-p.from)/10, time.Millisecond)
	p.from, p.to = p.from-margin, p.to+margin
	for _, server := range slices.Sorted(maps.Keys(h.servers)) {
		p.harm(fmt.Sprintf("server %d", server), h.servers[server])
	}
	for _, proc := range slices.Sorted(maps.Keys(h.harmed)) {
		p.harm(fmt.Sprintf("process %d", proc), h.harmed[proc])
	}
	for _, a := range h.holds {
		if a.name == v.holds[0].name {
			p.hold(a, slices.Contains(v.holds, a))
		}
	}
	p.finish(h.begin)
	return p
}

func (p *picture) harm(name string, stretches []stretch) {
	for _, s := range stretches {
		p.bar(name, s.from, s.to, "harm", string(s.fault), string(s.fault))
	}
}

func (p *picture) hold(a *hold, guilty bool) {
	name := fmt.Sprintf("worker %d.%d", a.proc, a.worker)
	class, text := "relied", fmt.Sprintf("…%04d", a.token%10000)
	if guilty {
		class = "guilty"
	}
	if a.token == 0 {
		text = ""
	}
	title := fmt.Sprintf("token %d, relied on for %v", a.token, a.relied-a.got)
	if a.got < p.to && a.relied > p.from {
		p.bar(name, a.asked, a.got, "asks", "", "waits")
	}
	p.bar(name, a.got, max(a.relied, a.got+1), class, text, title)
	if a.freed > a.relied {
		p.bar(name, a.relied, a.freed, "releases", "", "releases")
	}
}

// bar draws what of a stretch is in the picture.
func (p *picture) bar(row string, from, to time.Duration, class, text, title string) {
	if to < p.from || from > p.to {
		return
	}
	y, ok := p.rows[row]
	if !ok {
		if len(p.rows) == mostRows {
			return
		}
		y = len(p.rows)
		p.rows[row] = y
		p.Rows = append(p.Rows, label{marginLeft - 8, y*rowHeight + 15, row})
	}
	x, end := p.x(max(from, p.from)), p.x(min(to, p.to))
	b := bar{X: x, Y: y*rowHeight + 3, W: max(1, end-x), H: rowHeight - 6, Class: class, Text: text, Title: title}
	if class == "asks" {
		b.Y, b.H = b.Y+b.H/2, 1
	}
	b.TextX = x + 3
	if len(text)*letter > b.W {
		b.TextX = max(x, end) + 3
		if class == "relied" {
			b.Text = "" // there are too many of them
		}
	}
	p.Bars = append(p.Bars, b)
}

func (p *picture) x(at time.Duration) int {
	return marginLeft + int(float64(at-p.from)/float64(p.to-p.from)*(pictureWidth-marginLeft-marginRight))
}

// finish adds the times below.
func (p *picture) finish(begin time.Duration) {
	y := len(p.rows)*rowHeight + 18
	const ticks = 8
	for i := range ticks + 1 {
		at := p.from + (p.to-p.from)*time.Duration(i)/ticks
		p.Ticks = append(p.Ticks, label{p.x(at), y, fmt.Sprintf("%.3f s", (at - begin).Seconds())})
	}
	p.Height = y + 10
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Kind}}</title>
<style>body { font: 14px sans-serif; margin: 2em; color: #222 } svg { background: #fff }</style></head><body>
<h1>{{.Kind}}</h1>
<p>{{.Text}}</p>
<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="11">
<style>
.harm { fill: #c9b8dc } .asks { fill: #999 } .relied { fill: #8fb8de } .guilty { fill: #e2674a } .releases { fill: #dce9f5 }
.tick { stroke: #ddd }
</style>
<rect width="100%" height="100%" fill="#fff"/>
{{- range .Ticks}}
<line class="tick" x1="{{.X}}" x2="{{.X}}" y1="0" y2="{{.Y}}"/><text x="{{.X}}" y="{{.Y}}" text-anchor="middle" dy="8">{{.Text}}</text>
{{- end}}
{{- range .Rows}}
<text x="{{.X}}" y="{{.Y}}" text-anchor="end">{{.Text}}</text>
{{- end}}
{{- range .Bars}}
<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}"><title>{{.Title}}</title></rect>
{{- end}}
{{- range .Bars}}{{if .Text}}
<text x="{{.TextX}}" y="{{.Y}}" dy="12">{{.Text}}</text>
{{- end}}{{end}}
</svg>
<p>A line is a worker that waits, a bar the time that it relied on the lock, with the end of its token; the bars of the violation are red.
Above: what was done to the servers and processes.</p>
</body></html>
`))
