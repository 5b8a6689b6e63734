package command

import (
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
