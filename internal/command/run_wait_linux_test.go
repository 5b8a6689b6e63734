package command

import (
	"os"
	"strings"
	"testing"
)

// On a terminal a run that waits says for whom.
func TestWaitOnTerminal(t *testing.T) {
	t.Parallel()
	url, client := newStore(t)
	lock := holdLock(t, client, "x")
	c := newConsole(t, url, 120, 10, "run", "x", "--", "echo", "it is ours")
	c.start()
	c.waitText(`holdfast: waiting for "x", which is held by the-test under token `)
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	c.waitText("it is ours")
	if code := c.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if text := c.text(); strings.Count(text, "waiting") != 1 {
		t.Errorf("%q", text)
	}
}

func TestProcessOf(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ancestors := []string{"h/1/A", "a/b/47/B"}
	for holder, want := range map[string]int{
		"h/1/A": 1, "a/b/47/B": 47, "h/1/C": 0, "": 0, "x": 0,
		"holdfast " + host + "/4711 (PID 815)":       4711,
		"holdfast " + host + "/4711":                 0,
		"holdfast other-" + host + "/4711 (PID 815)": 0,
		"psql (PID 815)":                             0,
	} {
		if pid, ok := holderPID(holder, ancestors); pid != want || ok != (want != 0) {
			t.Errorf("%q: %d, %v, want %d", holder, pid, ok, want)
		}
	}
}
