//go:build unix

package torture

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A report is not wider than a terminal, and tells what matters.
func TestReport(t *testing.T) {
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	overlap = append(overlap, Event{At: 31 * ms, Step: Released, Proc: 2, Worker: 1, Try: 2, Err: strings.Repeat("a long story ", 20)})
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: ServerPause, Server: 3}}, overlap...), 3)
	c.judge()
	r := &Report{
		Store: "redis", Setup: "3 servers", Program: "holdfast", Seed: 7, Elapsed: time.Minute,
		Faults: map[Fault]int{ServerPause: 2, ServerForget: 40}, Outside: []Fault{ServerForget},
		Violations: shortest(c.violations), Seen: c.violations,
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if len(strings.TrimRight(line, "\n")) > columns {
			t.Errorf("too wide: %s", line)
		}
	}
	for _, want := range []string{
		"seed          7\n", "servers       3 servers\n", "server-pause          2\n", "all faults           42\n",
		"server-forget        40  outside", "seen 2 times", "two holders: a was relied on by two for",
		"harm   server-pause of server 3\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// The picture of a violation shows the holds and what was done meanwhile.
func TestPicture(t *testing.T) {
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: ServerPause, Server: 3}, {At: 10 * ms, Step: Heals, Fault: ServerPause, Server: 3}}, overlap...), 3)
	c.judge()
	path, err := c.h.draw(shortest(c.violations), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h1>two holders</h1>", ">server-pause<", ">server 3<", ">worker 1.1<", ">worker 2.1<"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if n := strings.Count(string(page), `class="guilty"`); n != 2 {
		t.Errorf("%d holds stand out, want 2", n)
	}
	if path, err := c.h.draw(nil, t.TempDir()); path != "" || err != nil {
		t.Errorf("a picture of nothing: %q, %v", path, err)
	}
}
