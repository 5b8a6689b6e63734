package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests run the real program: this test binary, started again, is parent and supervisor.
// What it does comes in an environment variable.
const (
	scenarioEnv = "SUPERVISE_TEST_ORDER"
	tagEnv      = "SUPERVISE_TEST_TAG"
)

// shortTTL is as short as a TTL can be for a machine that is kept very busy.
const shortTTL = 5 * time.Second

// testTimeout is far longer than anything takes on a busy machine.
const testTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(scenarioEnv); ok {
		os.Exit(runScenario(text))
	}
	// The race detector has every process sleep for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// A scenario is what a started test binary does.
type scenario struct {
	Shell     bool // be a shell on a terminal, and run the rest as a job
	Args      []string
	Tag       string // marks the processes of the command
	TTL       time.Duration
	NoRenew   bool
	KillAfter time.Duration
	Wait      bool // wait for a lease that never comes
	LoseAt    time.Duration
	Hang      bool // when the first renewal is due
	Report    string
	Hold      string
	Pin       bool // pin what is held
	Terms     int  // how often to lose a lease and to run a command under the next
}

// An outcome is what a supervisor found when Run had returned.
type outcome struct {
	Result    Result
	Survivors []string
	Left      time.Duration // until the lease ends
}

func runScenario(text string) int {
	var sc scenario
	if err := json.Unmarshal([]byte(text), &sc); err != nil {
		panic(err)
	}
	if sc.Shell {
		return sc.runShell()
	}
	code, err := Run(sc.superviseBody, func(w io.Writer, pids []int) { fmt.Fprintln(w, "stuck:", pids) })
	if errors.Is(err, ErrDied) || errors.Is(err, ErrHung) {
		fmt.Fprintln(os.Stderr, "parent:", err)
		return 121
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "parent:", err)
		return 126
	}
	return code
}

func (sc *scenario) superviseBody(sup *Supervisor) int {
	if sc.Wait {
		fmt.Fprintln(os.NewFile(4, "ready"), "waiting")
		<-sup.Context().Done()
		var interrupt *Interrupt
		if errors.As(context.Cause(sup.Context()), &interrupt) {
			return interrupt.Code()
		}
		return 99
	}
	if sc.Terms > 0 {
		return sc.runTerms(sup)
	}
	lease := newLease(sc, sup)
	cmd := &Command{
		Path:      sc.Args[0],
		Args:      sc.Args,
		Env:       append(os.Environ(), tagEnv+"="+sc.Tag),
		KillAfter: sc.KillAfter,
	}
	if sc.Hold != "" {
		f, err := os.OpenFile(sc.Hold, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			panic(err)
		}
		cmd.Hold = []*os.File{f}
		if sc.Pin {
			cmd.Hold, cmd.Pin = nil, cmd.Hold
		}
	}
	result, err := sup.Run(cmd, lease)
	v := outcome{Result: result, Left: time.Until(lease.Deadline())}
	v.Survivors = taggedProcesses(sc.Tag)
	if err != nil {
		panic(err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(sc.Report+".new", data, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(sc.Report+".new", sc.Report); err != nil {
		panic(err)
	}
	if result.Stopped {
		return 121
	}
	return result.Code
}

// runTerms runs two commands in each term. The first is killed, since its lease is lost; the
// second has a good lease, and must not be.
func (sc *scenario) runTerms(sup *Supervisor) int {
	for term := range sc.Terms {
		lost := newLease(&scenario{TTL: time.Hour, LoseAt: time.Nanosecond}, sup)
		if _, err := sup.Run(&Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}}, lost); err != nil && !errors.Is(err, ErrLate) {
			panic(err)
		}
		result, err := sup.Run(&Command{Path: "/bin/sleep", Args: []string{"sleep", "0.01"}}, newLease(&scenario{TTL: time.Hour}, sup))
		if err != nil || result.Code != 0 {
			fmt.Fprintf(sup, "term %d: %v, %+v", term, err, result)
			return 1
		}
	}
	return 0
}

// A fakeLease is renewed at a third of its time, and ends with it.
type fakeLease struct {
	mu       sync.Mutex
	deadline time.Time
	ctx      context.Context
}

func newLease(sc *scenario, sup *Supervisor) *fakeLease {
	ctx, lose := context.WithCancel(context.Background())
	l := &fakeLease{deadline: time.Now().Add(sc.TTL), ctx: ctx}
	if sc.LoseAt > 0 {
		time.AfterFunc(sc.LoseAt, lose)
	}
	go func() {
		for {
			time.Sleep(sc.TTL / 3)
			l.mu.Lock()
			if sc.Hang {
				return // and a caller of Deadline waits forever
			}
			left := time.Until(l.deadline)
			if !sc.NoRenew && left > 0 {
				l.deadline = time.Now().Add(sc.TTL)
			}
			l.mu.Unlock()
			if left <= 0 {
				lose()
				return
			}
		}
	}()
	return l
}

func (l *fakeLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *fakeLease) Context() context.Context { return l.ctx }

// taggedProcesses lists the living processes that have the tag.
func taggedProcesses(tag string) []string {
	var found []string
	for _, pid := range readDirNames("/proc") {
		env, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil || !strings.Contains(string(env), tagEnv+"="+tag+"\x00") {
			continue
		}
		if stat, err := readProcFile("/proc/" + pid + "/stat"); err == nil && !statHasEnded(string(stat)) {
			found = append(found, string(stat))
		}
	}
	return found
}

// statHasEnded reports whether a process has ended whole: the first thread alone may have ended,
// while others go on.
func statHasEnded(stat string) bool {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	return (fields[0] == "Z" || fields[0] == "X") && fields[17] == "1"
}

// hasPendingKill reports whether SIGKILL has been sent to a process: it is not in its own code
// any more, but a busy machine may take its time to end it.
func hasPendingKill(stat string) bool {
	pending, err := strconv.ParseUint(strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[28], 10, 64)
	return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
}

// A testRun is a parent that a test has started.
type testRun struct {
	t         *testing.T
	scenario  scenario
	cmd       *exec.Cmd
	ready     *bufio.Reader // what the command writes to descriptor 4
	alivePipe *os.File      // ends when no process has descriptor 3 any more
	out       *os.File
	ended     chan struct{}
}

var tags struct {
	sync.Mutex
	n int
}

// startRun starts a parent. The defaults of a scenario suit a command that is to live.
func startRun(t *testing.T, sc scenario) *testRun {
	t.Helper()
	r := prepareRun(t, sc)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitInBackground()
	return r
}

func prepareRun(t *testing.T, sc scenario) *testRun {
	t.Helper()
	tags.Lock()
	tags.n++
	sc.Tag = fmt.Sprintf("%d-%d-%d", os.Getpid(), tags.n, time.Now().UnixNano())
	tags.Unlock()
	if sc.TTL == 0 {
		sc.TTL = time.Hour
	}
	if sc.KillAfter == 0 {
		sc.KillAfter = 100 * time.Millisecond
	}
	if sc.Report == "" {
		sc.Report = filepath.Join(t.TempDir(), "report")
	}
	text, err := json.Marshal(sc)
	if err != nil {
		t.Fatal(err)
	}
	r := &testRun{t: t, scenario: sc, ended: make(chan struct{})}
	var alive, ready, out *os.File
	r.alivePipe, alive = pipe(t)
	in, ready := pipe(t)
	r.ready = bufio.NewReader(in)
	r.out, out = pipe(t)
	r.cmd = exec.Command("/proc/self/exe")
	r.cmd.Env = append(os.Environ(), scenarioEnv+"="+string(text))
	r.cmd.ExtraFiles = []*os.File{alive, ready}
	r.cmd.Stdout, r.cmd.Stderr = out, out
	return r
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, w
}

// waitInBackground waits for the parent in the background, and ensures that no process is left
// when the test is over.
func (r *testRun) waitInBackground() {
	for _, f := range append(r.cmd.ExtraFiles, r.cmd.Stdout.(*os.File)) {
		f.Close()
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Signal(unix.SIGCONT)
		_ = r.cmd.Process.Kill()
		<-r.ended
		r.waitFor(r.allExited(), "the end of all processes")
	})
}

// allExited is closed when no process is left that has inherited descriptor 3.
func (r *testRun) allExited() <-chan struct{} {
	c := make(chan struct{})
	go func() {
		_, _ = r.alivePipe.Read(make([]byte, 1))
		close(c)
	}()
	return c
}

func (r *testRun) waitFor(c <-chan struct{}, what string) {
	r.t.Helper()
	select {
	case <-c:
	case <-time.After(testTimeout):
		r.t.Fatalf("no sign of %s; left: %q", what, taggedProcesses(r.scenario.Tag))
	}
}

// readLines waits until the command has written so many lines to descriptor 4.
func (r *testRun) readLines(n int) []string {
	r.t.Helper()
	var lines []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			line, err := r.ready.ReadString('\n')
			if err != nil {
				return
			}
			lines = append(lines, strings.TrimSpace(line))
		}
	}()
	r.waitFor(done, "the command")
	if len(lines) < n {
		r.t.Fatalf("the command said %q, then ended", lines)
	}
	return lines
}

// exitCode waits for the end of the parent and returns its exit code, the negative number of
// the signal that killed it.
func (r *testRun) exitCode() int {
	r.t.Helper()
	r.waitFor(r.ended, "the end of the parent")
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// outcome waits until every process is gone, and returns what the supervisor found.
func (r *testRun) outcome() outcome {
	r.t.Helper()
	r.waitFor(r.allExited(), "the end of all processes")
	data, err := os.ReadFile(r.scenario.Report)
	if err != nil {
		r.t.Fatal(err)
	}
	var v outcome
	if err := json.Unmarshal(data, &v); err != nil {
		r.t.Fatal(err)
	}
	if len(v.Survivors) > 0 {
		r.t.Errorf("the tree was reported dead, but these were alive: %q", v.Survivors)
	}
	return v
}

// mustHaveNoSurvivors fails the test if a process of the command is alive now.
func (r *testRun) mustHaveNoSurvivors() {
	r.t.Helper()
	if left := taggedProcesses(r.scenario.Tag); len(left) > 0 {
		r.t.Errorf("still alive: %q", left)
	}
}

func (r *testRun) sendSignal(sig unix.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// supervisorPID returns the process id of the supervisor.
func (r *testRun) supervisorPID() int {
	r.t.Helper()
	pid := r.cmd.Process.Pid
	var children []string
	for _, tid := range readDirNames(fmt.Sprintf("/proc/%d/task", pid)) {
		data, _ := readProcFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid)) // the thread may have ended
		children = append(children, strings.Fields(string(data))...)
	}
	if len(children) == 0 {
		r.t.Fatal("the parent has no child")
	}
	supervisor, err := strconv.Atoi(children[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return supervisor
}

func readDirNames(folder string) []string {
	entries, _ := os.ReadDir(folder) // a process may have ended
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func readProcFile(path string) ([]byte, error) { return os.ReadFile(path) }
