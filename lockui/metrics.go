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

// metrics are the figures of a store, with their types and what they mean.
var metrics = []struct{ name, kind, help string }{
	{"up", "gauge", "Whether the store answered the last listing."},
	{"locks", "gauge", "Locks of the last listing."},
	{"waiting", "gauge", "Clients that wait in the queues of the store."},
	{"oldest_hold_seconds", "gauge", "Age of the oldest hold."},
	{"list_seconds", "gauge", "Duration of the last listing that was answered."},
	{"list_errors_total", "counter", "Listings that failed."},
	{"findings", "gauge", "Findings of the last examination."},
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// figures calls add with each figure of a store that is known.
func (s *store) figures(add func(name, label string, value float64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.examined.IsZero() {
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
	if s.snapshot.Failure() == nil && !s.snapshot.At.IsZero() {
		up = 1
	}
	add("up", "", up)
	add("list_errors_total", "", float64(s.failures))
	if s.snapshot.Answered.IsZero() {
		return // its locks are unknown, not none
	}
	held, kept, waiting, oldest := 0, 0, 0, time.Duration(0)
	for _, lock := range s.snapshot.Locks {
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
	add("list_seconds", "", s.snapshot.Took.Seconds())
}

// serveMetrics writes the text format of Prometheus. A scrape counts as a viewer for a moment: it
// lists the stores, unless that was done within the interval.
func (p *page) serveMetrics(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	lines := map[string]string{}
	for _, s := range p.stores {
		s.figures(func(name, label string, value float64) {
			lines[name] += fmt.Sprintf("holdfast_store_%s{store=\"%s\"%s} %v\n", name, labelEscapes.Replace(s.name), label, value)
		})
	}
	var out bytes.Buffer
	for _, m := range metrics {
		fmt.Fprintf(&out, "# HELP holdfast_store_%s %s\n# TYPE holdfast_store_%s %s\n%s", m.name, m.help, m.name, m.kind, lines[m.name])
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
