package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// The test binary is also every other process of these tests: roleVariable says
// which, and its arguments follow in argsVariable.
const (
	roleVariable = "FILESTORE_TEST_ROLE"
	argsVariable = "FILESTORE_TEST_ARGS"
)

// roles are what a child process can do. What one returns is printed, and the
// process fails.
var roles = map[string]func(args []string) error{
	"hold":    roleHold,
	"inherit": roleInherit,
	"count":   roleCount,
	"churn":   roleChurn,
	"sleep":   roleSleep,
	"detach":  roleDetach,
}

// atExit are what is called when all tests have run.
var atExit []func()

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // Else every process sleeps for a second at its end.
		code := m.Run()
		for _, end := range atExit {
			end()
		}
		os.Exit(code)
	}
	if err := roles[role](strings.Split(os.Getenv(argsVariable), "\n")); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// A child is a process of its own in one of the roles.
type child struct {
	*exec.Cmd
	tb    testing.TB
	in    io.WriteCloser
	lines *bufio.Reader
}

// command prepares a child.
func command(role string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, argsVariable+"="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts a child that is killed in the end, if it has not ended by then.
func start(tb testing.TB, cmd *exec.Cmd) *child {
	tb.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	c := &child{Cmd: cmd, tb: tb, in: in, lines: bufio.NewReader(out)}
	tb.Cleanup(c.kill)
	return c
}

// kill kills the child, if it lives, and waits for its end.
func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// line reads a line that the child prints.
func (c *child) line() string {
	c.tb.Helper()
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.tb.Fatalf("the child said %q and no more: %v", line, err)
	}
	line = strings.TrimSuffix(line, "\n")
	if strings.HasPrefix(line, "failed:") {
		c.tb.Fatalf("the child %s", line)
	}
	return line
}

// number reads a line with a number.
func (c *child) number() int64 {
	c.tb.Helper()
	n, err := strconv.ParseInt(c.line(), 10, 64)
	if err != nil {
		c.tb.Fatal(err)
	}
	return n
}

// finish tells the child to end and waits for it.
func (c *child) finish() {
	c.tb.Helper()
	c.in.Close()
	rest, _ := io.ReadAll(c.lines)
	if err := c.Wait(); err != nil {
		c.tb.Fatalf("the child said %q and ended: %v", rest, err)
	}
}

func awaitEOF() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// roleHold takes a name, prints the token, and keeps it until its input ends.
func roleHold(args []string) error {
	ttl, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	res, err := s.Acquire(context.Background(), request(args[1], ttl))
	if err != nil {
		return err
	}
	if !res.Granted {
		return errors.New("not granted")
	}
	fmt.Println(res.Token)
	return awaitEOF()
}

var owners atomic.Int64

// request is a request of an owner of its own.
func request(name string, ttl time.Duration) olddriver.AcquireRequest {
	owner := fmt.Sprintf("owner-%d-%d", os.Getpid(), owners.Add(1))
	return olddriver.AcquireRequest{Name: name, Owner: owner, Holder: "holder-of-" + owner, TTL: ttl}
}

// openTest opens a store that is closed in the end.
func openTest(tb testing.TB, dir string) *engine {
	tb.Helper()
	h, err := thisHost()
	if err != nil {
		tb.Fatal(err)
	}
	return openTestOn(tb, h, dir)
}

func openTestOn(tb testing.TB, h host, dir string) *engine {
	tb.Helper()
	s, err := openWithHost(h, dir, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

// recheckFolder makes s check its folder at the next request, as if it had not for long.
func recheckFolder(s *engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folderChecked = time.Time{}
}

// granted takes a name that must be free, and returns the request and its token.
func granted(tb testing.TB, s *engine, name string, ttl time.Duration) (olddriver.AcquireRequest, int64) {
	tb.Helper()
	req := request(name, ttl)
	res, err := s.Acquire(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	if !res.Granted {
		tb.Fatalf("%q is not granted: %+v", name, res.Held)
	}
	return req, res.Token
}

// refused checks that a name is not to be had.
func refused(tb testing.TB, s *engine, name string) olddriver.Record {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), request(name, time.Hour))
	if err != nil {
		tb.Fatal(err)
	}
	if res.Granted {
		tb.Fatalf("%q is granted", name)
	}
	return res.Held
}

func released(tb testing.TB, s *engine, req olddriver.AcquireRequest) {
	tb.Helper()
	ok, err := s.Release(tb.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil || !ok {
		tb.Fatalf("Release: %v, %v", ok, err)
	}
}

// eventually waits until done reports true.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(deadline) {
			tb.Fatalf("it does not come to pass that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// A fakeHost is a host whose clocks the test sets. It can be rebooted, and lose
// power.
type fakeHost struct {
	boots int
	wall  atomic.Int64 // nanoseconds
	up    atomic.Int64

	mu      sync.Mutex
	flushed map[string][]byte // contents by path
	broken  error             // what flushing fails with
}

func newFakeHost() *fakeHost {
	f := &fakeHost{boots: 1, flushed: map[string][]byte{}}
	f.wall.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	f.up.Store(int64(time.Hour))
	return f
}

func (f *fakeHost) host() host {
	return host{
		boot:   fmt.Sprint("boot-", f.boots),
		uptime: func() time.Duration { return time.Duration(f.up.Load()) },
		wall:   func() time.Time { return time.Unix(0, f.wall.Load()) },
		flush:  f.flush,
	}
}

// flush remembers what a power loss leaves of a file.
func (f *fakeHost) flush(file *os.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := os.ReadFile(file.Name())
	if err != nil || f.broken != nil {
		return errors.Join(err, f.broken)
	}
	f.flushed[file.Name()] = data
	return nil
}

// losePower leaves in dir what has been flushed, and a clock without battery.
func (f *fakeHost) losePower(tb testing.TB, dir string) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.RemoveAll(dir); err != nil {
		tb.Fatal(err)
	}
	for path, data := range f.flushed {
		writeFile(tb, path, string(data))
	}
	f.reboot()
	f.wall.Store(0)
}

// pass lets time go by.
func (f *fakeHost) pass(d time.Duration) {
	f.wall.Add(int64(d))
	f.up.Add(int64(d))
}

// step sets the wall clock alone.
func (f *fakeHost) step(d time.Duration) { f.wall.Add(int64(d)) }

// reboot takes effect for stores that are opened after it.
func (f *fakeHost) reboot() {
	f.boots++
	f.up.Store(int64(time.Second))
}

func (s *engine) recordPath(name string) string { return filepath.Join(s.locksPath, fileName(name)) }

func (s *engine) tokensPath() string { return filepath.Join(s.dir, tokensFile) }
