//go:build unix

package torture

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A report is not wider than a terminal, and has the facts that matter.
func TestReport(t *testing.T) {
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	overlap = append(overlap, Event{At: 31 * ms, Step: Released, Proc: 2, Worker: 1, Try: 2, Err: strings.Repeat("a long story ", 20)})
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: ServerPause, Server: 3}}, overlap...), 3)
	c.checkAll()
	r := &Report{
		Store: "redis", Setup: "3 servers", Program: "holdfast", Seed: 7, Elapsed: time.Minute,
		Faults: map[Fault]int{ServerPause: 2, ServerForget: 40}, Outside: []Fault{ServerForget},
		Violations: shortestFirst(c.violations), Seen: c.violations,
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if len(strings.TrimRight(line, "\n")) > lineWidth {
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

// The picture of a run without violations shows leases and faults, and nothing red.
func TestPictureOfSuccess(t *testing.T) {
	events := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 25*ms, 1000*ms, 30*ms)...)
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: Pause, Proc: 2}, {At: 10 * ms, Step: Heals, Fault: Pause, Proc: 2}}, events...), 3)
	c.checkAll()
	path, err := c.history.writePicture(c.violations, 100*ms, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h1>nothing found</h1>", "Grants: 2, locks: 1, faults: 1.", ">pause<", ">process 2<", ">worker 1.1<", ">worker 2.1<"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if strings.Contains(string(page), `class="guilty"`) || strings.Contains(string(page), "red") {
		t.Error("something is red")
	}
}

// The picture of a violation shows the leases and what was done meanwhile.
func TestPicture(t *testing.T) {
	overlap := append(held(1, 1, 0, 1*ms, 1000*ms, 20*ms), held(2, 2, 5*ms, 15*ms, 1000*ms, 30*ms)...)
	c := tried(append([]Event{{At: 8 * ms, Step: Harm, Fault: ServerPause, Server: 3}, {At: 10 * ms, Step: Heals, Fault: ServerPause, Server: 3}}, overlap...), 3)
	c.checkAll()
	path, err := c.history.writePicture(shortestFirst(c.violations), 100*ms, t.TempDir())
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
	if path, err := tried(nil, 0).history.writePicture(nil, 100*ms, t.TempDir()); path != "" || err != nil {
		t.Errorf("a picture of nothing: %q, %v", path, err)
	}
}
