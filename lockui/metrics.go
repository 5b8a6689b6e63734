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

// metrics are those that are written for each store of which they are known.
var metrics = []struct {
	name, kind, help string
	known            func(s *store) bool
	values           func(s *store, add func(value float64, labels ...string))
}{
	{"holdfast_store_up", "gauge", "Whether the store answered the last listing.", (*store).canList, func(s *store, add func(float64, ...string)) {
		up := 0.0
		if s.snapshot.Failure() == nil && !s.snapshot.At.IsZero() {
			up = 1
		}
		add(up)
	}},
	{"holdfast_store_locks", "gauge", "Locks of the last listing.", (*store).hasAnswered, func(s *store, add func(float64, ...string)) {
		held, kept, _ := s.counts()
		add(float64(held), "state", "held")
		add(float64(kept), "state", "kept")
	}},
	{"holdfast_store_waiting", "gauge", "Clients that wait in the queues of the store.", (*store).hasAnswered, func(s *store, add func(float64, ...string)) {
		_, _, waiting := s.counts()
		add(float64(waiting))
	}},
	{"holdfast_store_oldest_hold_seconds", "gauge", "Age of the oldest hold.", (*store).hasAnswered, func(s *store, add func(float64, ...string)) {
		oldest := time.Duration(0)
		for _, r := range s.rows {
			for _, hold := range lockview.EachHold(r.rec) {
				if age, ok := lockview.Age(hold); ok && !hold.Kept {
					oldest = max(oldest, age+time.Since(s.snapshot.At))
				}
			}
		}
		add(oldest.Seconds())
	}},
	{"holdfast_store_list_seconds", "gauge", "Duration of the last listing.", (*store).canList, func(s *store, add func(float64, ...string)) {
		add(s.took.Seconds())
	}},
	{"holdfast_store_list_errors_total", "counter", "Listings that failed.", (*store).canList, func(s *store, add func(float64, ...string)) {
		add(float64(s.failures))
	}},
	{"holdfast_store_findings", "gauge", "Findings of the last examination.", (*store).isExamined, func(s *store, add func(float64, ...string)) {
		for _, severity := range []doctor.Severity{doctor.Unknown, doctor.Warning, doctor.Failure} {
			add(float64(s.countFindings(severity)), "severity", severity.String())
		}
	}},
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// serveMetrics writes the text format of Prometheus. A scrape counts as a viewer for a moment: it
// lists the stores, unless that was done within the interval.
func (p *page) serveMetrics(w http.ResponseWriter, r *http.Request) {
	p.refreshAll(r.Context())
	for _, s := range p.stores {
		p.examine(s)
	}
	var out bytes.Buffer
	p.mu.Lock()
	for _, m := range metrics {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for _, s := range p.stores {
			if !m.known(s) {
				continue
			}
			m.values(s, func(value float64, labels ...string) {
				fmt.Fprintf(&out, `%s{store="%s"`, m.name, labelEscapes.Replace(s.name))
				for i := 0; i < len(labels); i += 2 {
					fmt.Fprintf(&out, `,%s="%s"`, labels[i], labels[i+1])
				}
				fmt.Fprintf(&out, "} %v\n", value)
			})
		}
	}
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
