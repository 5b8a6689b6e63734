package supervise

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// With parent and supervisor both killed no process is left to kill the descendants of the
// command, which itself dies; but what is held stays held by them.
func TestBothKilled(t *testing.T) {
	// On a terminal without a shell all are in one group, so that one kill reaches parent and
	// supervisor at once. The command has left it.
	r := startOnTerminal(t, scenario{Hold: lockFile(t), Args: []string{"/usr/bin/setsid", "sh", "-c", `
		sh -c 'echo $$ >&4; exec sleep 1000' &
		echo $$ >&4; exec sleep 1000`}})
	pids := r.readLines(2)
	if err := unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.exitCode()
	for began := time.Now(); len(taggedProcesses(r.scenario.Tag)) > 1; time.Sleep(time.Millisecond) {
		if time.Since(began) > testTimeout {
			t.Fatal("the command has survived both")
		}
	}

	held := r.openHeldFile()
	if err := unix.Flock(held, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Fatalf("the file is free while a descendant lives: %v", err)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Kill(pid, unix.SIGKILL) // one of them is dead already
	}
	r.waitUnlocked(held)
}

// With the supervisor killed the parent holds what is held until all are dead, even if the
// command has closed what it inherited.
func TestSupervisorKilledWhileHolding(t *testing.T) {
	// Only bash can name descriptors above 9.
	r := startRun(t, scenario{Hold: lockFile(t), Args: []string{"/bin/bash", "-c",
		`for fd in {5..30}; do eval "exec $fd>&-"; done; exec /bin/sh -c "$0"`, stubborn[2]}})
	r.readLines(stubbornLines)
	if err := unix.Kill(r.supervisorPID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.waitUnlocked(r.openHeldFile())
	r.mustHaveNoSurvivors()
}

// waitUnlocked waits until no process holds the file any more.
func (r *testRun) waitUnlocked(fd int) {
	r.t.Helper()
	began := time.Now()
	for unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if time.Since(began) > testTimeout {
			r.t.Fatal("the file is not free")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func lockFile(t *testing.T) string {
	t.Helper()
	file := t.TempDir() + "/held"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// openHeldFile opens the file that the run holds.
func (r *testRun) openHeldFile() int {
	r.t.Helper()
	f, err := os.Open(r.scenario.Hold)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}
