//go:build unix

package command

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C, which all processes of a terminal get, ends a torture in good order: it
// is judged, no server is left, and none of its data.
func TestTortureInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("holdfast", "torture", "--own", "redis", "--for", "10m", "--procs", "2")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if logs, _ := filepath.Glob(filepath.Join(dir, "*", "process-2.jsonl")); len(logs) > 0 {
			break
		}
		if time.Since(began) > testTimeout {
			t.Fatal("no process has begun")
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("it ended with %v, want exit code 130\n%s", err, output.String())
	}
	if !strings.Contains(output.String(), "\nviolations    0\n") {
		t.Errorf("no report of what was seen up to then:\n%s", output.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
