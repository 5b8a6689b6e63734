//go:build unix

package torture

import (
	"strings"
	"testing"
	"time"
)

// A report has the facts that matter.
func TestReport(t *testing.T) {
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	overlap = append(overlap, Event{At: 31 * ms, Step: Released, Proc: 2, Worker: 1, Try: 2, Err: strings.Repeat("a long story ", 20)})
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: ServerPause, Server: 3}}, overlap...), 3)
	c.checkAll()
	r := &Report{
		Store: "redis", Seed: 7, Elapsed: time.Minute,
		Faults: map[Fault]int{ServerPause: 2, ServerForget: 40}, Outside: []Fault{ServerForget},
		Violations: shortestFirst(c.violations), Seen: c.violations,
	}
	text := r.String()
	for _, want := range []string{
		"seed          7\n", "server-pause          2\n", "all faults           42\n",
		"server-forget        40  outside", "seen 1 times", "two holders: a was relied on by two for",
		"harm   server-pause of server 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
