//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A picture is a page with the leases around a violation, or those of a part of a run without
// one, and the faults meanwhile. It has a row for each server and process that had a fault, and
// for each worker. All measures are in pixels.
type picture struct {
	kind, text string
	violation  bool

	from, to   time.Duration
	rows       map[string]int  // the number of each row
	rowNames   strings.Builder // SVG
	bars       strings.Builder // SVG
	barTexts   strings.Builder // SVG, drawn over the bars
	axis       strings.Builder // SVG
	axisHeight int
}

// The measures of a picture.
const (
	pictureWidth   = 1000
	marginLeft     = 90
	marginRight    = 40
	letterWidth    = 7
	rowHeight      = 22
	maxPictureRows = 60
)

// writePicture writes a page for the first violation that has leases. Without one the page shows
// what went well: the lock with the most grants for three TTLs from shortly before the first
// fault.
func (h *history) writePicture(violations []Violation, ttl time.Duration, dir string) (string, error) {
	var p *picture
	if i := slices.IndexFunc(violations, func(v Violation) bool { return len(v.leases) > 0 }); i >= 0 {
		p = h.violationPicture(violations[i])
	} else if len(violations) == 0 && len(h.leases) > 0 {
		p = h.successPicture(ttl)
	} else {
		return "", nil
	}
	path := filepath.Join(dir, "history.html")
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = p.write(file)
	return path, cmp.Or(err, file.Close())
}

// violationPicture draws the time from a little before the first lease was granted until the
// last one was over.
func (h *history) violationPicture(v Violation) *picture {
	p := &picture{kind: v.Kind, text: v.Text, violation: true, from: never}
	for _, l := range v.leases {
		shownUntil := min(l.validUntil, l.grantedAt+10*time.Second)
		p.from, p.to = min(p.from, l.beginsAt()), max(p.to, l.grantedAt, l.queuedUntil, shownUntil, l.releasedAt)
	}
	margin := max((p.to-p.from)/10, time.Millisecond)
	p.from, p.to = p.from-margin, p.to+margin
	h.draw(p, v.leases[0].name, v.leases)
	return p
}

func (h *history) successPicture(ttl time.Duration) *picture {
	grants := map[string]int{}
	for _, l := range h.leases {
		grants[l.name]++
	}
	// The first by name of those with the most grants.
	name := slices.MaxFunc(slices.Sorted(maps.Keys(grants)), func(a, b string) int {
		return cmp.Compare(grants[a], grants[b])
	})
	first, faults := never, 0
	for _, all := range []map[int][]interval{h.serverFaults, h.processFaults} {
		for _, intervals := range all {
			faults += len(intervals)
			for _, s := range intervals {
				first = min(first, s.from)
			}
		}
	}
	if first == never {
		first = h.startedAt
	}
	from := max(first-ttl/2, h.startedAt)
	p := &picture{kind: "nothing found", from: from, to: from + 3*ttl}
	p.text = fmt.Sprintf("Grants: %d, locks: %d, faults: %d. Here %s, for %v.",
		len(h.leases), len(grants), faults, name, 3*ttl)
	h.draw(p, name, nil)
	return p
}

// draw adds the faults, the leases of a lock, of which some are guilty, and the time.
func (h *history) draw(p *picture, name string, guilty []*lease) {
	p.rows = map[string]int{}
	for _, server := range slices.Sorted(maps.Keys(h.serverFaults)) {
		p.addFaults(fmt.Sprintf("server %d", server), h.serverFaults[server])
	}
	for _, proc := range slices.Sorted(maps.Keys(h.processFaults)) {
		p.addFaults(fmt.Sprintf("process %d", proc), h.processFaults[proc])
	}
	for _, l := range h.leases {
		if l.name == name {
			p.addLease(l, slices.Contains(guilty, l))
		}
	}
	p.addTimeAxis(h.startedAt)
}

func (p *picture) addFaults(name string, intervals []interval) {
	for _, s := range intervals {
		p.addBar(name, s.from, s.to, "harm", string(s.fault), string(s.fault))
	}
}

func (p *picture) addLease(l *lease, guilty bool) {
	name := fmt.Sprintf("worker %d.%d", l.proc, l.worker)
	class, text := "relied", fmt.Sprintf("…%04d", l.token%10000)
	if guilty {
		class = "guilty"
	}
	if l.token == 0 {
		text = ""
	}
	title := fmt.Sprintf("token %d, relied on for %v", l.token, l.validUntil-l.grantedAt)
	if l.grantedAt < p.to && l.validUntil > p.from {
		p.addBar(name, l.requestedAt, l.grantedAt, "asks", "", "waits")
	}
	p.addBar(name, l.grantedAt, max(l.validUntil, l.grantedAt+1), class, text, title)
	if l.releasedAt > l.validUntil {
		p.addBar(name, l.validUntil, l.releasedAt, "releases", "", "releases")
	}
}

// addBar draws the part of an interval that is in the picture.
func (p *picture) addBar(row string, from, to time.Duration, class, text, title string) {
	if to < p.from || from > p.to {
		return
	}
	y, ok := p.rows[row]
	if !ok {
		if len(p.rows) == maxPictureRows {
			return
		}
		y = len(p.rows)
		p.rows[row] = y
		fmt.Fprintf(&p.rowNames, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
			marginLeft-8, y*rowHeight+15, html.EscapeString(row))
	}
	x, end := p.xAt(max(from, p.from)), p.xAt(min(to, p.to))
	width, top, height := max(1, end-x), y*rowHeight+3, rowHeight-6
	if class == "asks" {
		top, height = top+height/2, 1
	}
	fmt.Fprintf(&p.bars,
		"<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><title>%s</title></rect>\n",
		class, x, top, width, height, html.EscapeString(title))
	textX := x + 3
	if len(text)*letterWidth > width {
		textX = max(x, end) + 3
		if class == "relied" {
			return // there are too many of them
		}
	}
	if text != "" {
		fmt.Fprintf(&p.barTexts, "<text x=\"%d\" y=\"%d\" dy=\"12\">%s</text>\n",
			textX, top, html.EscapeString(text))
	}
}

func (p *picture) xAt(at time.Duration) int {
	const width = pictureWidth - marginLeft - marginRight
	return marginLeft + int(float64(at-p.from)/float64(p.to-p.from)*width)
}

// addTimeAxis adds the times below.
func (p *picture) addTimeAxis(runStart time.Duration) {
	y := len(p.rows)*rowHeight + 18
	const ticks = 8
	for i := range ticks + 1 {
		at := p.from + (p.to-p.from)*time.Duration(i)/ticks
		x := p.xAt(at)
		fmt.Fprintf(&p.axis, `<line class="tick" x1="%[1]d" x2="%[1]d" y1="0" y2="%[2]d"/>`+
			`<text x="%[1]d" y="%[2]d" text-anchor="middle" dy="8">%.3[3]f s</text>`+"\n",
			x, y, (at - runStart).Seconds())
	}
	p.axisHeight = y + 10
}

// write writes the page, without html/template, which the command would link for it alone.
func (p *picture) write(w io.Writer) error {
	red := ""
	if p.violation {
		red = "; the bars of the violation are red"
	}
	_, err := fmt.Fprintf(w, pictureFormat, html.EscapeString(p.kind), html.EscapeString(p.text),
		pictureWidth, p.axisHeight, p.axis.String(), p.rowNames.String(), p.bars.String(), p.barTexts.String(), red)
	return err
}

// pictureFormat is the page: the kind, the text, width and height, the parts of the SVG, and an
// addition to the legend.
const pictureFormat = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%[1]s</title>
<style>body { font: 14px sans-serif; margin: 2em; color: #222 } svg { background: #fff }</style></head><body>
<h1>%[1]s</h1>
<p>%[2]s</p>
<svg xmlns="http://www.w3.org/2000/svg" width="%[3]d" height="%[4]d" viewBox="0 0 %[3]d %[4]d"
 font-family="sans-serif" font-size="11">
<style>
.harm { fill: #c9b8dc } .asks { fill: #999 } .relied { fill: #8fb8de } .guilty { fill: #e2674a }
.releases { fill: #dce9f5 } .tick { stroke: #ddd }
</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%[5]s%[6]s%[7]s%[8]s</svg>
<p>A line is a worker that waits, a bar the time that it relied on the lock, with the end of its token%[9]s.
Above: what was done to the servers and processes.</p>
</body></html>
`
