package main

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
)

func init() { programs["holdfast-survivors"] = mainSurvivors }

// tagName marks every process of the command of a round.
const tagName = "HOLDFAST_TEST_TAG"

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

// A blow is what befalls the two processes of a "holdfast run".
type blow struct {
	name   string
	script string
	strike func(r *round)
}

var blows = []blow{
	{"front killed", stubborn, func(r *round) { r.kill(r.front, syscall.SIGKILL) }},
	{"keeper killed", stubborn, func(r *round) { r.kill(r.keeper, syscall.SIGKILL) }},
	{"front stopped", stubborn, func(r *round) {
		r.kill(r.front, syscall.SIGSTOP)
		r.pause()
		r.kill(r.keeper, syscall.SIGKILL)
		r.kill(r.front, syscall.SIGCONT)
	}},
	{"keeper stopped", stubborn, func(r *round) { r.kill(r.keeper, syscall.SIGSTOP) }},
	{"command killed", stubborn, func(r *round) { r.kill(r.command, syscall.SIGKILL) }},
	{"folder unwritable", stubborn, (*round).forbid},
	// Nobody is left to kill the grandchildren, but the lock is not free as long
	// as they live, up to its TTL.
	{"both killed", shortLived, func(r *round) {
		r.kill(r.keeper, syscall.SIGSTOP)
		r.kill(r.front, syscall.SIGKILL)
		r.kill(r.keeper, syscall.SIGKILL)
	}},
}

// TestPromise: when a second "holdfast run" starts its command, no process of the
// first is alive, whatever has happened to that.
func TestPromise(t *testing.T) {
	rounds := len(blows)
	if text := os.Getenv("HOLDFAST_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := openTempDir(t)
	program := install(t, dir)
	for i := range rounds {
		b := blows[i%len(blows)]
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := &round{t: t, program: program, dir: openTempDir(t), tag: fmt.Sprintf("%d-%d", os.Getpid(), rand.Uint64())}
			r.play(b)
		})
	}
}

// A round is a blow to a run, and a second run after it.
type round struct {
	t                      *testing.T
	program, dir, tag      string
	front, keeper, command int
	first                  *exec.Cmd
}

func (r *round) play(b blow) {
	r.begin(b.script)
	b.strike(r)

	second := r.run(r.program+"-survivors", r.tag)
	var said bytes.Buffer
	second.Stdout, second.Stderr = &said, &said
	if err := second.Run(); err != nil {
		r.t.Errorf("the second run: %v\n%s", err, said.Bytes())
	}
	_ = r.first.Wait() // its exit code is a matter of other tests
}

// begin starts the first run and waits until its whole tree is there.
func (r *round) begin(script string) {
	r.t.Helper()
	r.first = r.run("env", tagName+"="+r.tag, "sh", "-c", script)
	var said bytes.Buffer
	r.first.Stderr = &said
	out, err := r.first.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.first.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.front = r.first.Process.Pid
	for lines := 0; lines < 3; {
		buf := make([]byte, 100)
		n, err := out.Read(buf)
		if err != nil {
			r.t.Fatalf("the command has ended: %v, %v: %s", err, r.first.Wait(), said.Bytes())
		}
		lines += bytes.Count(buf[:n], []byte("\n"))
	}
	r.keeper = childOf(r.t, r.front)
	r.command = childOf(r.t, r.keeper)
}

// run is a "holdfast run" of this round's lock, by a user without privileges.
func (r *round) run(command ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), longest)
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, r.program, append([]string{"run", "x", "--ttl", promiseTTL, "--kill-after", "100ms", "--"}, command...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE=file:locks")
	cmd.Dir = r.dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

const nobody = 65534

func (r *round) kill(pid int, sig syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		r.t.Errorf("%v to %d: %v", sig, pid, err)
	}
}

// pause lets the TTL pass.
func (r *round) pause() {
	ttl, err := time.ParseDuration(promiseTTL)
	if err != nil {
		r.t.Fatal(err)
	}
	time.Sleep(ttl + time.Second)
}

// forbid makes the store unwritable until the first run has ended.
func (r *round) forbid() {
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

// install copies this test binary to where every user may execute it, as
// holdfast and as the program that looks for survivors.
func install(t *testing.T, dir string) string {
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
		if err != nil || !bytes.Contains(env, []byte(tagName+"="+tag+"\x00")) {
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
	for began := time.Now(); time.Since(began) < longest; time.Sleep(time.Millisecond) {
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
