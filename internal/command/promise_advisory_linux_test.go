package command

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestPromiseAdvisory: an advisory lock ends with a connection, which the death of the
// supervisor would end. All the same the lock is not free before the command and its 500
// daemons are dead, one of which takes two seconds to end since holdfast may not kill it.
func TestPromiseAdvisory(t *testing.T) {
	rounds := 1
	if text := os.Getenv("TEST_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	store := strings.Replace(servers.StartPostgres(t).URL("postgres"), "postgres:", "postgres+advisory:", 1)
	dir := openTempDir(t)
	program := installProgram(t, dir)
	foreign := filepath.Join(dir, "foreign")
	installForeignProgram(t, foreign)
	next, err := holdfast.Open(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	for round := range rounds {
		name := fmt.Sprint("round ", round)
		tag := fmt.Sprintf("%d-%d", os.Getpid(), rand.Uint64())
		cmd := exec.Command(program, "run", name, "--store", store, "--ttl", "1m", "--", "env", tagEnv+"="+tag, "sh", "-c",
			`mkfifo fifo"$0"; "$1" & for i in 0 1 2 3 4 5 6 7 8 9; do setsid sh -c "$2" fifo"$0" & done; exec sleep 1000`,
			tag, foreign, `for i in $(seq 50); do (read x) <>$0 & done; echo up; wait`)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Geteuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobodyID, Gid: nobodyID}
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for range 10 {
			if line, err := lines.ReadString('\n'); line != "up\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		if err := syscall.Kill(childOf(t, cmd.Process.Pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		lock := acquireAtRelease(t, next, name)
		if left := survivors(tag); len(left) > 0 {
			t.Errorf("round %d: the lock was free while %d processes lived", round, len(left))
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // 121
	}
}

// installForeignProgram creates a program that sleeps for two seconds as root, whichever user
// starts it. Elsewhere than under root it sleeps as the user.
func installForeignProgram(t *testing.T, path string) {
	t.Helper()
	sleep := "#!/bin/sh\nexec sleep 2\n"
	if os.Geteuid() != 0 {
		if err := os.WriteFile(path, []byte(sleep), 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	setpriv, err := os.ReadFile("/usr/bin/setpriv")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"-setpriv", setpriv, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(path+"-setpriv", 0o4755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s-setpriv --reuid 0 sleep 2\n", path)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// acquireAtRelease acquires a lock within a millisecond or two of its release.
func acquireAtRelease(t *testing.T, client *holdfast.Client, name string) *holdfast.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for {
		lock, err := client.TryAcquire(ctx, name, nil)
		if err == nil {
			return lock
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}
