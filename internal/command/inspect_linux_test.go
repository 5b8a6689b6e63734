package command

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// A signal ends those that wait, with the exit code that a shell would report.
func TestSignals(t *testing.T) {
	acceptSignals()
	url, client := newStore(t)
	holdLock(t, client, "x")
	for _, command := range []string{"wait x -v", "wait x -v --timeout 1h", "ls --watch"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			t.Run(command+" "+sig.String(), func(t *testing.T) {
				cmd := exec.Command("holdfast", strings.Fields(command)...)
				cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url)
				reader, writer, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				cmd.Stdout, cmd.Stderr = writer, writer
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				writer.Close()
				// It waits from its first words on.
				if _, err := reader.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				if err := cmd.Process.Signal(sig); err != nil {
					t.Error(err)
				}
				text, _ := io.ReadAll(reader)
				_ = cmd.Wait() // its exit code is looked at
				if code := cmd.ProcessState.ExitCode(); code != 128+int(sig) || strings.Contains(string(text), sig.String()) {
					t.Errorf("exit code %d, %s", code, text)
				}
			})
		}
	}
}

// A reader that has gone before the first word is no failure.
func TestWatchWithoutReader(t *testing.T) {
	url, client := newStore(t)
	holdLock(t, client, "x")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer writer.Close()
	cmd := exec.Command("holdfast", "ls", "--watch")
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+url)
	cmd.Stdout = writer
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Run(); err != nil || said.Len() > 0 {
		t.Errorf("%v, %q", err, said)
	}
}

// With the right to read the folder and not to write it, locks are shown, and the error of break
// has the reason.
func TestReadOnlyStore(t *testing.T) {
	dir := openTempDir(t)
	program := installProgram(t, dir)
	client, err := holdfast.Open(context.Background(), "file:"+dir+"/locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	holdLock(t, client, "x")
	for path, mode := range map[string]os.FileMode{"locks/locks/x.json": 0o644, "locks/locks": 0o755, "locks/sessions": 0o755, "locks": 0o755} {
		if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]struct {
		code int
		text string
	}{
		"ls":                  {0, "\nx "},
		"show x":              {0, "state   held\n"},
		"wait x --timeout 0":  {exitBusy, `wait for "x": held by `},
		"break x --yes":       {exitUnavailable, `permission denied`},
		"break free --yes":    {exitNobody, `nobody holds "free"`},
		"run y --try -- true": {exitUnavailable, `permission denied`},
	} {
		cmd := exec.Command(program, strings.Fields(command)...)
		cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:"+dir+"/locks")
		cmd.Dir = dir
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
		} else if err := os.Chmod(dir+"/locks/locks/x.json", 0o444); err != nil {
			t.Fatal(err)
		}
		text, _ := cmd.CombinedOutput() // its exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != want.code || !strings.Contains(string(text), want.text) {
			t.Errorf("%s: exit code %d, %s", command, code, text)
		}
	}
	if _, err := client.Lookup(context.Background(), "x"); err != nil {
		t.Error(err)
	}
}
