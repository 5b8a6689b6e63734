package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStatusFileOfStrangers: a link or a pipe of another user in a folder that everybody
// can write to is refused, wherever in the path it is, and nothing that it leads to is
// touched. Links of this user and of the owner of the folder are followed.
func TestStatusFileOfStrangers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to have files of another user")
	}
	dir := openTempDir(t)
	program := installProgram(t, dir)
	sticky := filepath.Join(dir, "sticky")
	victims := filepath.Join(dir, "victims")
	for _, folder := range []string{sticky, victims} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Chmod(sticky, 0o1777); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(victims, "precious")
	own := filepath.Join(sticky, "own")
	for link, target := range map[string]string{
		filepath.Join(sticky, "direct"):   precious,
		filepath.Join(sticky, "folder"):   victims,
		own:                               precious,
		filepath.Join(victims, "chained"): filepath.Join(sticky, "direct"),
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(link) == sticky && link != own {
			if err := os.Lchown(link, nobodyID, nobodyID); err != nil {
				t.Fatal(err)
			}
		}
	}
	pipe := filepath.Join(sticky, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(pipe, nobodyID, nobodyID); err != nil {
		t.Fatal(err)
	}
	run := func(file string) (int, string) {
		cmd := exec.Command(program, "run", "x", "--store", "file:"+filepath.Join(dir, "locks"), "--status-file", file, "--", "true")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, file := range []string{
		filepath.Join(sticky, "direct"), filepath.Join(sticky, "folder", "precious"),
		filepath.Join(victims, "chained"), "sticky/direct", pipe,
	} {
		if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out := run(file)
		if code != 64 || !strings.Contains(out, "belongs to another user") {
			t.Errorf("%s: exit code %d, %s", file, code, out)
		}
		if data, err := os.ReadFile(precious); string(data) != "precious" {
			t.Errorf("%s: the target has become %q, %v", file, data, err)
		}
	}
	if code, out := run(own); code != 0 {
		t.Errorf("a link of our own: exit code %d, %s", code, out)
	}
	if data, err := os.ReadFile(precious); !strings.Contains(string(data), `"outcome":"done"`) {
		t.Errorf("a link of our own: %q, %v", data, err)
	}
}
