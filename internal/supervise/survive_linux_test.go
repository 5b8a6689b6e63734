package supervise

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// One of the two is stopped for good and the other is killed: the kernel continues
// the one that is left, which then does its work.
func TestOneStoppedOneKilled(t *testing.T) {
	for name, stopParent := range map[string]bool{"parent stopped": true, "supervisor stopped": false} {
		t.Run(name, func(t *testing.T) {
			// Under a reaper of orphans in its session, a supervisor without its parent is no
			// orphaned process group, which the kernel would continue anyway.
			if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
			r := startRun(t, scenario{Args: stubborn})
			r.readLines(stubbornLines)
			stopped, killed := r.supervisorPID(), r.cmd.Process.Pid
			if stopParent {
				stopped, killed = killed, stopped
			}
			if err := unix.Kill(stopped, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			r.waitState(strconv.Itoa(stopped), "T")
			if err := unix.Kill(killed, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.waitFor(r.allExited(), "the end of all processes")
			r.mustHaveNoSurvivors()
			if !stopParent {
				_, _ = unix.Wait4(stopped, nil, 0, nil) // it is our child now
			}
		})
	}
}

// With the supervisor killed the parent keeps open what is pinned until all are dead. The
// command does not have it.
func TestSupervisorKilledWithPinnedFile(t *testing.T) {
	r := startRun(t, scenario{Hold: lockFile(t), Pin: true, Args: stubborn})
	r.readLines(stubbornLines)
	for _, stat := range taggedProcesses(r.scenario.Tag) {
		pid, _, _ := strings.Cut(stat, " ")
		for _, fd := range readDirNames("/proc/" + pid + "/fd") {
			if path, err := os.Readlink("/proc/" + pid + "/fd/" + fd); err == nil && path == r.scenario.Hold {
				t.Errorf("process %s has inherited the file", pid)
			}
		}
	}
	if err := unix.Kill(r.supervisorPID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.waitUnlocked(r.openHeldFile())
	r.mustHaveNoSurvivors()
}

// What hides in /proc, since it is not dumpable and /proc is mounted with hidepid=2,
// is killed all the same. What is not ours to kill is reported, and waited for at
// little cost.
func TestHiddenDescendants(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount /proc")
	}
	t.Parallel()
	dir := openTempDir(t)
	program := filepath.Join(dir, "program")
	copyFile(t, "/proc/self/exe", program, 0o755)
	hidden := filepath.Join(dir, "hidden")
	copyFile(t, "/bin/sleep", hidden, 0o711) // a program that nobody may read is not dumpable
	foreign := filepath.Join(dir, "foreign")
	copyFile(t, "/usr/bin/setpriv", foreign, 0o4711)

	const asNobody = `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0"`
	start := func(t *testing.T, command, starter string) *testRun {
		r := prepareRun(t, scenario{Args: shellArgs(command), Report: filepath.Join(dir, filepath.Base(t.Name()))})
		cmd := exec.Command("/bin/sh", "-c",
			`mount -t proc -o hidepid=2 proc /proc && `+starter, program)
		cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = r.cmd.Env, r.cmd.ExtraFiles, r.cmd.Stdout, r.cmd.Stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		r.cmd = cmd
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.waitInBackground()
		return r
	}
	t.Run("left behind", func(t *testing.T) {
		r := start(t, hidden+` 1000 & echo ready >&4; exit 5`, asNobody)
		r.readLines(1)
		if code := r.exitCode(); code != 5 {
			t.Errorf("exit code %d", code)
		}
		r.mustHaveNoSurvivors()
	})
	t.Run("supervisor killed", func(t *testing.T) {
		r := start(t, hidden+` 1000 & (`+hidden+` 1000 &) ; echo ready >&4; sleep 1000`, asNobody)
		r.readLines(1)
		if err := unix.Kill(r.supervisorPID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := r.exitCode(); code != 121 {
			t.Errorf("exit code %d", code)
		}
		r.mustHaveNoSurvivors()
	})
	t.Run("the shell that controls the job", func(t *testing.T) {
		r := start(t, `test $(ps -o pgid= -p $PPID) = $(ps -o pgid= -p $$) && exit 1; exit 7`, `script -qec "perl -e '
			if (!fork) { \$( = \$) = \"65534 65534\"; \$< = \$> = 65534; exec @ARGV } wait; exit \$? >> 8' $0" /dev/null`)
		if code := r.exitCode(); code != 7 {
			t.Errorf("exit code %d: the supervisor is in the group that Ctrl-Z stops", code)
		}
	})
	t.Run("another user's", func(t *testing.T) {
		r := start(t, foreign+` --reuid 0 sleep 1000 & echo $! >&4; exit 6`, asNobody)
		pid, err := strconv.Atoi(r.readLines(1)[0])
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Kill(pid, unix.SIGKILL)
		text := make([]byte, 100)
		n, err := r.out.Read(text)
		if want := "stuck: [" + strconv.Itoa(pid) + "]\n"; err != nil || string(text[:n]) != want {
			t.Errorf("%q, %v, want %q", text[:n], err, want)
		}
		before := r.cpuTicks(r.supervisorPID())
		time.Sleep(2 * time.Second)
		if used := r.cpuTicks(r.supervisorPID()) - before; used > 20 { // of 200 ticks
			t.Errorf("%d ticks of processor time in two seconds", used)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code := r.exitCode(); code != 6 {
			t.Errorf("exit code %d", code)
		}
	})
}

// cpuTicks is the processor time that a process has used, in ticks of 10 ms.
func (r *testRun) cpuTicks(pid int) int {
	r.t.Helper()
	stat, err := readProcFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		r.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		r.t.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		r.t.Fatal(err)
	}
	return user + system
}

// openTempDir is a temporary folder that every user may use.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func copyFile(t *testing.T, from, to string, mode uint32) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}

// What ends a command does not reach the next one.
func TestNextCommandIsNotKilled(t *testing.T) {
	r := startRun(t, scenario{Terms: 100})
	if code := r.exitCode(); code != 0 {
		text, _ := io.ReadAll(r.out)
		t.Errorf("exit code %d: %s", code, text)
	}
}
