package lockui

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// metrics are the figures of a store, and what they mean.
var metrics = []struct{ name, help string }{
	{"up", "Whether the store answered the last listing."},
	{"locks", "Locks of the last listing."},
	{"waiting", "Clients that wait in the queues of the store."},
	{"oldest_hold_seconds", "Age of the oldest hold."},
	{"findings", "Findings of the last examination."},
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// figures calls add with each figure of a store that is known.
func (s *store) figures(add func(name, label string, value float64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.findings != nil {
		count := map[doctor.Severity]int{}
		for _, f := range s.findings {
			count[f.Severity]++
		}
		for _, severity := range []doctor.Severity{doctor.Unknown, doctor.Warning, doctor.Failure} {
			add("findings", `,severity="`+severity.String()+`"`, float64(count[severity]))
		}
	}
	if !s.canList() {
		return
	}
	up := 0.0
	if s.failure == nil && !s.answered.IsZero() {
		up = 1
	}
	add("up", "", up)
	if s.answered.IsZero() {
		return // its locks are unknown, not none
	}
	held, kept, waiting, oldest := 0, 0, 0, time.Duration(0)
	for _, lock := range s.locks {
		if waiting += lock[0].Waiting; lock[0].Kept {
			kept++
		} else {
			held++
		}
		for _, hold := range lock {
			if age, ok := lockview.Age(hold); ok && !hold.Kept {
				oldest = max(oldest, age)
			}
		}
	}
	add("locks", `,state="held"`, float64(held))
	add("locks", `,state="kept"`, float64(kept))
	add("waiting", "", float64(waiting))
	add("oldest_hold_seconds", "", oldest.Seconds())
}

// serveMetrics writes the text format of Prometheus. A scrape counts as a viewer for a moment: it
// lists the stores, unless that was done lately.
func (p *page) serveMetrics(w http.ResponseWriter, r *http.Request) {
	p.refresh(r.Context())
	lines := map[string]string{}
	for _, s := range p.stores {
		s.figures(func(name, label string, value float64) {
			lines[name] += fmt.Sprintf("holdfast_store_%s{store=\"%s\"%s} %v\n", name, labelEscapes.Replace(s.name), label, value)
		})
	}
	var out bytes.Buffer
	for _, m := range metrics {
		fmt.Fprintf(&out, "# HELP holdfast_store_%s %s\n# TYPE holdfast_store_%s gauge\n%s", m.name, m.help, m.name, lines[m.name])
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
