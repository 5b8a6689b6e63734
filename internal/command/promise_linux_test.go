package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

	"github.com/holdfast-go/holdfast/internal/servers"
)

func init() { programs["holdfast-survivors"] = mainSurvivors }

// tagEnv marks every process of the command of a trial.
const tagEnv = "HOLDFAST_TEST_TAG"

// promiseTTL is short, for the sake of the tests.
const promiseTTL = "4s"

// A tree is a kind of processes that a command consists of. The script writes three lines when all
// are there.
var trees = []struct{ name, script string }{
	// Grandchildren that ignore SIGTERM, one of them an orphan in a session of its own.
	{"stubborn", `
trap '' TERM INT HUP QUIT
(setsid sh -c 'echo orphan; sleep 1000; :' &)
sh -c '(echo deep; sleep 1000; :); :' &
echo root
while :; do sleep 1000; done`},
	{"sessions", `
setsid sh -c 'setsid sh -c "echo deep; sleep 1000; :" & echo up; wait' & echo root; wait`},
	{"daemons that close everything", `
for i in 1 2; do perl -MPOSIX -e 'exit if fork; setsid; exit if fork; syswrite STDOUT, "up\n"; POSIX::close($_) for 0..255; sleep 1000'; done
echo root; exec sleep 1000`},
	{"fork until EAGAIN", `
exec perl -e '$SIG{TERM} = "IGNORE"; for (1..200) { defined($p = fork) or last; if (!$p) { setpgrp; sleep 1000; exit } } print "up\nup\nup\n"; close STDOUT; sleep 1000'`},
	// One goes on under its tracer, the other stays stopped.
	{"traced", `
exec perl -MPOSIX -e '$n = (POSIX::uname)[4] eq "x86_64" ? 101 : 117;
	for $i (1, 2) { if (!($p = fork)) { syscall $n, 0, 0, 0, 0; kill STOP => $$; sleep 1000; exit }
		waitpid $p, 0; syscall $n, 7, $p, 0, 0 if $i == 1; syswrite STDOUT, "up\n" }
	syswrite STDOUT, "up\n"; sleep 1000'`},
	{"stopped", `
(setsid sh -c 'echo up; kill -STOP $$; :' &); sh -c 'echo up; kill -STOP $$; :' & echo root; exec sleep 1000`},
	{"namespaces", `
unshare -Urpf --mount-proc sh -c '(setsid sh -c "echo up; sleep 1000; :" &); echo up; sleep 1000; :' & echo root; exec sleep 1000`},
	{"ever new processes", `
echo 'sleep .01; setsid sh ./hop &' >hop; setsid sh ./hop & setsid sh ./hop & printf 'up\nup\nup\n'; exec sleep 1000`},
}

// shortLived leaves grandchildren that end by themselves before the TTL.
const shortLived = `
(setsid sh -c 'echo orphan; sleep 1.5; :' &)
sh -c '(echo deep; sleep 1; :); :' &
echo root
exec sleep 1000`

// A faultCase is what happens to the two processes of a "holdfast run".
type faultCase struct {
	name   string
	inject func(r *trial)
}

const (
	bothKilled  = "both killed"
	frontKilled = "front killed"
	storeCut    = "store cut"
	maxHold     = "max-hold"
	nobodyReads = "nobody reads standard error"
)

var faultCases = []faultCase{
	{"parent killed", func(r *trial) { r.sendSignal(r.parentPID, syscall.SIGKILL) }},
	{"supervisor killed", func(r *trial) { r.sendSignal(r.supervisorPID, syscall.SIGKILL) }},
	{"parent stopped", func(r *trial) {
		r.sendSignal(r.parentPID, syscall.SIGSTOP)
		r.sleepTTL()
		r.sendSignal(r.supervisorPID, syscall.SIGKILL)
	}},
	{"supervisor stopped", func(r *trial) { r.sendSignal(r.supervisorPID, syscall.SIGSTOP) }},
	{"supervisor stopped, parent killed", func(r *trial) {
		r.sendSignal(r.supervisorPID, syscall.SIGSTOP)
		r.sendSignal(r.parentPID, syscall.SIGKILL)
	}},
	{"command killed", func(r *trial) { r.sendSignal(r.commandPID, syscall.SIGKILL) }},
	{storeCut, (*trial).cutStore},
	{"limits reached", func(r *trial) {
		for _, pid := range []int{r.parentPID, r.supervisorPID} {
			cmd := exec.CommandContext(r.t.Context(), "prlimit", "--nofile=0", "--nproc=0", "--fsize=0", "--pid", strconv.Itoa(pid))
			cmd.SysProcAttr = r.asUser()
			if out, err := cmd.CombinedOutput(); err != nil {
				r.t.Errorf("%s, %v", out, err)
			}
		}
		r.sendSignal([]int{r.parentPID, r.supervisorPID}[rand.IntN(2)], syscall.SIGKILL)
	}},
	{nobodyReads, func(r *trial) { r.sendSignal(r.supervisorPID, syscall.SIGSTOP) }},
	{maxHold, func(*trial) {}},
	{"suspended", func(r *trial) {
		r.sendSignal(r.parentPID, syscall.SIGSTOP)
		r.sendSignal(-r.commandPID, syscall.SIGSTOP)
		r.sleepTTL()
		r.sendSignal([]int{r.parentPID, r.supervisorPID}[rand.IntN(2)], syscall.SIGKILL)
	}},
	{frontKilled, func(r *trial) { r.sendSignal(r.first.Process.Pid, syscall.SIGKILL) }},
	// No process is left to kill the grandchildren, but the lock is not free as long as they
	// live, up to its TTL. One kill reaches both, in the group of the terminal.
	{bothKilled, func(r *trial) { r.sendSignal(-r.parentPID, syscall.SIGKILL) }},
}

// TestPromise: when a second "holdfast run" starts its command, no process of the
// first is alive, whatever has happened to that. Nor was a process signaled that is none of it.
func TestPromise(t *testing.T) {
	rounds := len(faultCases)
	if text := os.Getenv("TEST_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	program := installProgram(t, openTempDir(t))
	for i := range rounds {
		b, tree := faultCases[i%len(faultCases)], trees[(i+i/len(faultCases))%len(trees)]
		for _, store := range []string{"file", "redis"} {
			if rounds == len(faultCases) && (store == "redis") != (i%2 == 0) {
				continue // of the few rounds that are part of every test, each has one store
			}
			t.Run(b.name+", "+tree.name+", "+store, func(t *testing.T) {
				t.Parallel()
				r := &trial{t: t, program: program, dir: openTempDir(t), tag: fmt.Sprintf("%d-%d", os.Getpid(), rand.Uint64())}
				r.uid = uint32(60000 + i*2%5000)
				if r.store = "file:locks"; store == "redis" {
					r.uid++
					r.server = servers.StartRedis(t)
					r.store = "redis://" + r.server.Addr
				}
				r.runFault(b, tree.script)
			})
		}
	}
}

// A trial is a fault of a run, and a second run after it.
type trial struct {
	t                                    *testing.T
	program, dir, tag, store             string
	uid                                  uint32         // of all its processes, if the test is root
	server                               *servers.Redis // nil of files
	parentPID, supervisorPID, commandPID int
	first                                *exec.Cmd
}

func (r *trial) runFault(b faultCase, tree string) {
	strange := r.startStranger()
	r.startFirst(b, tree)
	second := r.runHoldfast(nil, r.program+"-survivors", r.tag)
	var said bytes.Buffer
	second.Stdout, second.Stderr = &said, &said
	start := func() {
		if err := second.Start(); err != nil {
			r.t.Fatal(err)
		}
	}
	if b.name != storeCut {
		start() // and it waits
	}
	time.Sleep(rand.N(200 * time.Millisecond))
	b.inject(r)
	if b.name == storeCut {
		start()
	}
	if err := second.Wait(); err != nil {
		r.t.Errorf("the second run: %v\n%s", err, said.Bytes())
	}
	if b.name == nobodyReads {
		r.sendSignal(r.parentPID, syscall.SIGTERM) // which waits for a reader now
	}
	_ = r.first.Wait() // its exit code is a matter of other tests
	strange()
}

// startStranger starts a process beside the first run, in the same group. The function that it
// returns fails the test if that has got a signal.
func (r *trial) startStranger() func() {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "perl", "-e", `
		for $s (grep { !/KILL|STOP|CHLD|NUM|RT|^__/ } keys %SIG, qw(HUP INT QUIT TERM USR1 USR2 CONT TSTP)) { $SIG{$s} = sub { syswrite STDOUT, "got $s\n" } }
		syswrite STDOUT, "up\n"; sleep 1 until getppid == 1`)
	cmd.SysProcAttr = r.asUser()
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		r.sendSignal(cmd.Process.Pid, syscall.SIGKILL)
		if text, err := io.ReadAll(out); len(text) > 0 || err != nil {
			r.t.Errorf("a stranger: %s, %v", text, err)
		}
		if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			r.t.Errorf("a stranger: %v", err)
		}
	}
}

// startFirst starts the first run and waits until its whole tree is there.
func (r *trial) startFirst(b faultCase, tree string) {
	r.t.Helper()
	var flags []string
	var said bytes.Buffer
	var stderr io.Writer = &said
	if b.name == maxHold {
		flags = []string{"--max-hold", "6s"}
	}
	if b.name == nobodyReads {
		flags = []string{"-v"}
		in, out, err := os.Pipe()
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { in.Close(); out.Close() })
		if err := out.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			r.t.Fatal(err)
		}
		_, _ = out.Write(make([]byte, 1<<20)) // until it is full
		stderr = out
	}
	r.first = r.runHoldfast(flags, "env", tagEnv+"="+r.tag, "sh", "-c", tree)
	if b.name == bothKilled {
		r.first = r.runHoldfast(nil, "setsid", "env", tagEnv+"="+r.tag, "sh", "-c", shortLived)
		r.startOnTerminal(r.first)
	} else {
		script := `ulimit -u 80; exec "$0" "$@"`
		if b.name == frontKilled {
			script = `sleep 1000 & ` + script
		}
		r.first.Args = append([]string{"bash", "-c", script}, r.first.Args...)
		if os.Geteuid() != 0 { // whose limit is that of a user of a namespace then
			r.first.Args = append([]string{"unshare", "--user", "--map-current-user"}, r.first.Args...)
		}
		path, err := exec.LookPath(r.first.Args[0])
		if err != nil {
			r.t.Fatal(err)
		}
		r.first.Path = path
	}
	r.first.Stderr, r.first.WaitDelay = stderr, time.Second // an older child has it open, too
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
	if b.name == frontKilled {
		older := childOf(r.t, r.parentPID)
		r.t.Cleanup(func() { r.sendSignal(older, syscall.SIGKILL) }) // it lives still
		r.parentPID = childOf(r.t, r.parentPID, older)
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
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 3
}

// runHoldfast is a "holdfast run" of this trial's lock, by a user without privileges.
func (r *trial) runHoldfast(flags []string, command ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*testTimeout)
	r.t.Cleanup(cancel)
	args := append([]string{"run", "x", "--ttl", promiseTTL, "--kill-after", "100ms"}, flags...)
	cmd := exec.CommandContext(ctx, r.program, append(append(args, "--"), command...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+r.store)
	cmd.Dir = r.dir
	cmd.SysProcAttr = r.asUser()
	return cmd
}

const nobodyID = 65534

// asUser returns what makes a process one of the trial's user.
func (r *trial) asUser() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
}

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

// cutStore makes the store hang, or unwritable, until the first run has ended.
func (r *trial) cutStore() {
	modes := map[string]os.FileMode{}
	var err error
	if r.server != nil {
		r.server.Pause()
		defer r.server.Resume()
	} else {
		err = filepath.WalkDir(r.dir+"/locks", func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			modes[path] = info.Mode()
			return err
		})
	}
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

// childOf waits until a process has a child beside those of a list, and returns the oldest.
func childOf(t *testing.T, pid int, except ...int) int {
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
				if !slices.Contains(except, child) {
					children = append(children, child)
				}
			}
		}
		if len(children) > 0 {
			return slices.Min(children)
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
