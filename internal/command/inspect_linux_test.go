package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// With the right to read the folder and not to write it, nothing is shown but the reason.
func TestReadOnlyStore(t *testing.T) {
	dir := openTempDir(t)
	program := installProgram(t, dir)
	client, err := holdfast.Open(context.Background(), "file:"+dir+"/locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	holdLock(t, client, "x")
	err = os.Chmod(dir+"/locks", 0o555)
	if os.Geteuid() != 0 { // Then this user is the one that may not.
		files, _ := filepath.Glob(dir + "/locks/locks-*")
		for _, file := range files {
			err = errors.Join(err, os.Chmod(file, 0))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"ls", "show x", "wait x --timeout 0", "break x --yes", "run y --try -- true"} {
		cmd := exec.Command(program, strings.Fields(command)...)
		cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:"+dir+"/locks")
		cmd.Dir = dir
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
		}
		text, _ := cmd.CombinedOutput() // its exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != exitUnavailable || !strings.Contains(string(text), "permission denied") {
			t.Errorf("%s: exit code %d, %s", command, code, text)
		}
	}
}
