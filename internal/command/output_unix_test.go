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
