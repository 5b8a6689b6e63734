package command

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

func init() { programs["holdfast-survivors"] = mainSurvivors }

// tagEnv marks every process of the command of a trial.
const tagEnv = "HOLDFAST_TEST_TAG"

// promiseTTL is short, for the sake of the tests.
const promiseTTL = "4s"

// stubborn is a command that does not want to die: grandchildren that ignore
// SIGTERM, one of them an orphan in a session of its own. Each writes a line.
const stubborn = `
trap '' TERM INT HUP QUIT
(setsid sh -c 'echo orphan; sleep 1000; :' &)
sh -c '(echo deep; sleep 1000; :); :' &
echo root
while :; do sleep 1000; done`

// shortLived leaves grandchildren that end by themselves before the TTL.
const shortLived = `
(setsid sh -c 'echo orphan; sleep 1.5; :' &)
sh -c '(echo deep; sleep 1; :); :' &
echo root
exec sleep 1000`

// A faultCase is what happens to the two processes of a "holdfast run".
type faultCase struct {
	name   string
	script string
	inject func(r *trial)
}

var faultCases = []faultCase{
	{"parent killed", stubborn, func(r *trial) { r.sendSignal(r.parentPID, syscall.SIGKILL) }},
	{"supervisor killed", stubborn, func(r *trial) { r.sendSignal(r.supervisorPID, syscall.SIGKILL) }},
	{"parent stopped", stubborn, func(r *trial) {
		r.sendSignal(r.parentPID, syscall.SIGSTOP)
		r.sleepTTL()
		r.sendSignal(r.supervisorPID, syscall.SIGKILL)
	}},
	{"supervisor stopped", stubborn, func(r *trial) { r.sendSignal(r.supervisorPID, syscall.SIGSTOP) }},
	{"supervisor stopped, parent killed", stubborn, func(r *trial) {
		r.sendSignal(r.supervisorPID, syscall.SIGSTOP)
		r.sendSignal(r.parentPID, syscall.SIGKILL)
	}},
	{"command killed", stubborn, func(r *trial) { r.sendSignal(r.commandPID, syscall.SIGKILL) }},
	{"folder unwritable", stubborn, (*trial).makeUnwritable},
	// No process is left to kill the grandchildren, but the lock is not free as long as they
	// live, up to its TTL. One kill reaches both, in the group of the terminal.
	{bothKilled, shortLived, func(r *trial) { r.sendSignal(-r.parentPID, syscall.SIGKILL) }},
}

const bothKilled = "both killed"

// TestPromise: when a second "holdfast run" starts its command, no process of the
// first is alive, whatever has happened to that.
func TestPromise(t *testing.T) {
	rounds := len(faultCases)
	if text := os.Getenv("TEST_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := openTempDir(t)
	program := installProgram(t, dir)
	for i := range rounds {
		b := faultCases[i%len(faultCases)]
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := &trial{t: t, program: program, dir: openTempDir(t), tag: fmt.Sprintf("%d-%d", os.Getpid(), rand.Uint64())}
			r.runFault(b)
		})
	}
}

// A trial is a fault of a run, and a second run after it.
type trial struct {
	t                                    *testing.T
	program, dir, tag                    string
	parentPID, supervisorPID, commandPID int
	first                                *exec.Cmd
}

func (r *trial) runFault(b faultCase) {
	r.startFirst(b)
	b.inject(r)

	second := r.runHoldfast(r.program+"-survivors", r.tag)
	var said bytes.Buffer
	second.Stdout, second.Stderr = &said, &said
	if err := second.Run(); err != nil {
		r.t.Errorf("the second run: %v\n%s", err, said.Bytes())
	}
	_ = r.first.Wait() // its exit code is a matter of other tests
}

// startFirst starts the first run and waits until its whole tree is there.
func (r *trial) startFirst(b faultCase) {
	r.t.Helper()
	if b.name == bothKilled {
		r.first = r.runHoldfast("setsid", "env", tagEnv+"="+r.tag, "sh", "-c", b.script)
		r.startOnTerminal(r.first)
	} else {
		r.first = r.runHoldfast("env", tagEnv+"="+r.tag, "sh", "-c", b.script)
	}
	var said bytes.Buffer
	r.first.Stderr = &said
	out, err := r.first.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.first.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.parentPID = r.first.Process.Pid
	for lines := 0; lines < 3; {
		buf := make([]byte, 100)
		n, err := out.Read(buf)
		if err != nil {
			r.t.Fatalf("the command has ended: %v, %v: %s", err, r.first.Wait(), said.Bytes())
		}
		lines += bytes.Count(buf[:n], []byte("\n"))
	}
	r.supervisorPID = childOf(r.t, r.parentPID)
	r.commandPID = childOf(r.t, r.supervisorPID)
}

// startOnTerminal makes a run lead the session of a terminal, where its processes are one
// group.
func (r *trial) startOnTerminal(cmd *exec.Cmd) {
	r.t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		master.Close()
		slave.Close()
	})
	cmd.ExtraFiles = []*os.File{slave}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3
}

// runHoldfast is a "holdfast run" of this trial's lock, by a user without privileges.
func (r *trial) runHoldfast(command ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, r.program, append([]string{"run", "x", "--ttl", promiseTTL, "--kill-after", "100ms", "--"}, command...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:locks")
	cmd.Dir = r.dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	}
	return cmd
}

const nobodyID = 65534

func (r *trial) sendSignal(pid int, sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Errorf("%v to %d: %v", sig, pid, err)
	}
}

// sleepTTL lets the TTL pass.
func (r *trial) sleepTTL() {
	ttl, err := time.ParseDuration(promiseTTL)
	if err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(ttl + time.Second)
}

// makeUnwritable makes the store unwritable until the first run has ended.
func (r *trial) makeUnwritable() {
	modes := map[string]os.FileMode{}
	err := filepath.WalkDir(r.dir+"/locks", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		modes[path] = info.Mode()
		return err
	})
	for path, mode := range modes {
		if err == nil {
			err = os.Chmod(path, mode&^0o222)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = r.first.Process.Wait()
	if left := survivors(r.tag); len(left) > 0 {
		r.t.Errorf("the run has ended, but these are alive: %q", left)
	}
	for path, mode := range modes {
		if err := os.Chmod(path, mode); err != nil {
			r.t.Fatal(err)
		}
	}
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

// installProgram copies this test binary to where every user may execute it, as holdfast and as
// the program that looks for survivors.
func installProgram(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "holdfast")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, program+"-survivors"); err != nil {
		t.Fatal(err)
	}
	return program
}

// mainSurvivors fails if a process bears the tag.
func mainSurvivors() {
	if left := survivors(os.Args[1]); len(left) > 0 {
		fmt.Printf("alive: %q\n", left)
		os.Exit(1)
	}
}

// survivors lists the living processes that bear the tag.
func survivors(tag string) []string {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err)
	}
	var found []string
	for _, path := range stats {
		env, err := os.ReadFile(filepath.Dir(path) + "/environ")
		if err != nil || !bytes.Contains(env, []byte(tagEnv+"="+tag+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if _, fields, _ := strings.Cut(string(stat), ") "); fields[0] != 'Z' {
			found = append(found, string(stat))
		}
	}
	return found
}

// childOf waits until a process has a child, and returns the oldest.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	for began := time.Now(); time.Since(began) < testTimeout; time.Sleep(time.Millisecond) {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			t.Fatal(err)
		}
		var children []int
		for _, path := range lists {
			data, _ := os.ReadFile(path) // the thread may have ended
			for _, field := range strings.Fields(string(data)) {
				child, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				children = append(children, child)
			}
		}
		if len(children) > 0 {
			return slices.Min(children)
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
