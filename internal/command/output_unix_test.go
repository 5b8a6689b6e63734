//go:build unix

package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// A reader of standard output that is gone is exit code 74 of each subcommand that writes there,
// and a lock that acquire has taken is given back.
func TestReaderIsGone(t *testing.T) {
	url, client := newStore(t)
	holdLock(t, client, "held")
	for _, line := range []string{
		"acquire x --try", "acquire x --try --json", "ls", "ls --json", "show held", "doctor", "version",
		"break held --yes",
	} {
		args := strings.Fields(line)
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("holdfast", args...)
		cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url)
		var messages bytes.Buffer
		cmd.Stdout, cmd.Stderr = writer, &messages
		_ = cmd.Run() // the state has the exit code
		_ = writer.Close()
		if got := cmd.ProcessState.ExitCode(); got != exitOutput || strings.Count(messages.String(), "\n") != 1 {
			t.Errorf("%s: %v, want exit code 74; %q", line, cmd.ProcessState, &messages)
		}
		if _, err := client.Lookup(context.Background(), "x"); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("%s: the lock is left: %v", line, err)
		}
	}
}

// Acquire does not take a lock without anywhere to write its ticket. A script that wants no ticket
// discards it.
func TestAcquireWithoutOutput(t *testing.T) {
	url, client := newStore(t)
	for script, want := range map[string]int{
		"exec holdfast acquire x >&-":        exitOutput,
		"exec holdfast acquire y >/dev/null": 0,
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url)
		out, _ := cmd.CombinedOutput() // the state has the exit code
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d: %s", script, got, want, out)
		}
	}
	if _, err := client.Lookup(context.Background(), "x"); !errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("the lock was taken: %v", err)
	}
	if _, err := client.Lookup(context.Background(), "y"); err != nil {
		t.Errorf("the lock whose ticket is discarded: %v", err)
	}
}
