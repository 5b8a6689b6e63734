package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// The tests run the real thing: this test binary, started anew, is front and
// keeper. What it is to do comes in an environment variable.
const (
	orderName = "SUPERVISE_TEST_ORDER"
	tagName   = "SUPERVISE_TEST_TAG"
)

// shortTTL is as short as a TTL can be for a machine that is kept very busy.
const shortTTL = 5 * time.Second

// patience is far longer than anything takes on a busy machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(orderName); ok {
		os.Exit(obey(text))
	}
	// The race detector has every process sleep for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// An order is what a started test binary does.
type order struct {
	Shell     bool // be a shell on a terminal, and run the rest as a job
	Args      []string
	Tag       string // marks the processes of the command
	TTL       time.Duration
	NoRenew   bool
	Ignore    bool // never mind the lease
	KillAfter time.Duration
	Wait      bool // wait for a lease that never comes
	LoseAt    time.Duration
	Hang      bool // when the first renewal is due
	Say       string
	Report    string
	Hold      string
}

// A verdict is what a keeper found when Run had returned.
type verdict struct {
	Result    Result
	Err       string
	Survivors []string
	Left      time.Duration // until the lease ends
}

func obey(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	if o.Shell {
		return o.shell()
	}
	code, err := Run(o.keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, "front:", err)
		return 121
	}
	return code
}

func (o *order) keep(k *Keeper) int {
	if o.Wait {
		fmt.Fprintln(os.NewFile(4, "ready"), "waiting")
		<-k.Context().Done()
		var interrupt *Interrupt
		if errors.As(context.Cause(k.Context()), &interrupt) {
			return interrupt.Code()
		}
		return 99
	}
	fmt.Fprint(k, o.Say)
	lease := newLease(o, k)
	cmd := &Command{
		Path:      o.Args[0],
		Args:      o.Args,
		Env:       append(os.Environ(), tagName+"="+o.Tag),
		KillAfter: o.KillAfter,
	}
	if o.Ignore {
		cmd.OnLost = Ignore
	}
	if o.Hold != "" {
		f, err := os.OpenFile(o.Hold, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			panic(err)
		}
		cmd.Hold = []*os.File{f}
	}
	result, err := k.Run(cmd, lease)
	v := verdict{Result: result, Left: time.Until(lease.Deadline())}
	v.Survivors = survivors(o.Tag)
	if err != nil {
		v.Err = err.Error()
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(o.Report+".new", data, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(o.Report+".new", o.Report); err != nil {
		panic(err)
	}
	if result.Stopped {
		return 121
	}
	return result.Code
}

// A fakeLease is renewed at a third of its time, and ends with it.
type fakeLease struct {
	mu       sync.Mutex
	deadline time.Time
	ctx      context.Context
}

func newLease(o *order, k *Keeper) *fakeLease {
	ctx, lose := context.WithCancel(context.Background())
	l := &fakeLease{deadline: time.Now().Add(o.TTL), ctx: ctx}
	if o.LoseAt > 0 {
		time.AfterFunc(o.LoseAt, lose)
	}
	go func() {
		for {
			time.Sleep(o.TTL / 3)
			l.mu.Lock()
			if o.Hang {
				k.Renewed()
				return // and whoever asks for the deadline waits for ever
			}
			left := time.Until(l.deadline)
			if !o.NoRenew && left > 0 {
				l.deadline = time.Now().Add(o.TTL)
				k.Renewed()
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

// survivors lists the living processes that bear the tag.
func survivors(tag string) []string {
	var found []string
	for _, pid := range list("/proc") {
		env, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil || !strings.Contains(string(env), tagName+"="+tag+"\x00") {
			continue
		}
		if stat, err := content("/proc/" + pid + "/stat"); err == nil && !dead(string(stat)) {
			found = append(found, string(stat))
		}
	}
	return found
}

// dead reports whether a process has ended whole: the first thread alone may
// have ended, while others go on.
func dead(stat string) bool {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	return (fields[0] == "Z" || fields[0] == "X") && fields[17] == "1"
}

// killed reports whether SIGKILL has been sent to a process: it is not in its own
// code any more, but a busy machine may take its time to end it.
func killed(stat string) bool {
	pending, err := strconv.ParseUint(strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[28], 10, 64)
	return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
}

// A run is a front that a test has started.
type run struct {
	t     *testing.T
	order order
	cmd   *exec.Cmd
	ready *bufio.Reader // what the command writes to descriptor 4
	alive *os.File      // ends when no process has descriptor 3 any more
	out   *os.File
	ended chan struct{}
}

var tags struct {
	sync.Mutex
	n int
}

// begin starts a front. The defaults of an order suit a command that is to live.
func begin(t *testing.T, o order) *run {
	t.Helper()
	r := prepare(t, o)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.follow()
	return r
}

func prepare(t *testing.T, o order) *run {
	t.Helper()
	tags.Lock()
	tags.n++
	o.Tag = fmt.Sprintf("%d-%d-%d", os.Getpid(), tags.n, time.Now().UnixNano())
	tags.Unlock()
	if o.TTL == 0 {
		o.TTL = time.Hour
	}
	if o.KillAfter == 0 {
		o.KillAfter = 100 * time.Millisecond
	}
	o.Report = filepath.Join(t.TempDir(), "report")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, order: o, ended: make(chan struct{})}
	var alive, ready, out *os.File
	r.alive, alive = pipe(t)
	in, ready := pipe(t)
	r.ready = bufio.NewReader(in)
	r.out, out = pipe(t)
	r.cmd = exec.Command("/proc/self/exe")
	r.cmd.Env = append(os.Environ(), orderName+"="+string(text))
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

// follow waits for the front in the background and sees to it that nothing is
// left when the test is over.
func (r *run) follow() {
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
		r.wait(r.gone(), "the end of all processes")
	})
}

// gone is closed when no process is left that has inherited descriptor 3.
func (r *run) gone() <-chan struct{} {
	c := make(chan struct{})
	go func() {
		_, _ = r.alive.Read(make([]byte, 1))
		close(c)
	}()
	return c
}

func (r *run) wait(c <-chan struct{}, what string) {
	r.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		r.t.Fatalf("no sign of %s; left: %q", what, survivors(r.order.Tag))
	}
}

// lines waits until the command has written so many lines to descriptor 4.
func (r *run) lines(n int) []string {
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
	r.wait(done, "the command")
	if len(lines) < n {
		r.t.Fatalf("the command said %q, then ended", lines)
	}
	return lines
}

// code waits for the end of the front and returns its exit code, the negative
// number of the signal that killed it.
func (r *run) code() int {
	r.t.Helper()
	r.wait(r.ended, "the end of the front")
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

// verdict waits until every process is gone, and returns what the keeper found.
func (r *run) verdict() verdict {
	r.t.Helper()
	r.wait(r.gone(), "the end of all processes")
	data, err := os.ReadFile(r.order.Report)
	if err != nil {
		r.t.Fatal(err)
	}
	var v verdict
	if err := json.Unmarshal(data, &v); err != nil {
		r.t.Fatal(err)
	}
	if len(v.Survivors) > 0 {
		r.t.Errorf("the tree was reported dead, but these were alive: %q", v.Survivors)
	}
	return v
}

// mustBeEmpty fails the test if a process of the command is alive now.
func (r *run) mustBeEmpty() {
	r.t.Helper()
	if left := survivors(r.order.Tag); len(left) > 0 {
		r.t.Errorf("still alive: %q", left)
	}
}

func (r *run) signal(sig unix.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// keeper returns the process id of the keeper.
func (r *run) keeper() int {
	r.t.Helper()
	pid := r.cmd.Process.Pid
	var children []string
	for _, tid := range list(fmt.Sprintf("/proc/%d/task", pid)) {
		data, _ := content(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid)) // the thread may have ended
		children = append(children, strings.Fields(string(data))...)
	}
	if len(children) == 0 {
		r.t.Fatal("the front has no child")
	}
	keeper, err := strconv.Atoi(children[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return keeper
}
