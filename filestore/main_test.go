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

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// The test binary is also every other process of these tests: roleVariable has its role, and
// argsVariable the arguments.
const (
	roleVariable = "TEST_FILESTORE_ROLE"
	argsVariable = "TEST_FILESTORE_ARGS"
)

// roles are what a child process can do with a store. Each has the arguments that follow the
// folder. Its error is printed, and the process fails.
var roles = map[string]func(s *Store, args []string) error{
	"acquire": roleAcquire,
	"hold":    roleHold,
	"inherit": roleInherit,
	"churn":   roleChurn,
	"share":   roleShare,
	"sleep":   func(*Store, []string) error { time.Sleep(time.Hour); return nil },
}

// atExit are called when all tests have run.
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
	args := strings.Split(os.Getenv(argsVariable), "\n")
	s, err := New(args[0], nil)
	if err == nil {
		err = errors.Join(roles[role](s, args[1:]), s.Close())
	}
	if err != nil {
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

func command(role, dir string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	args = append([]string{dir}, args...)
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

func (c *child) line() string {
	c.tb.Helper()
	line, err := c.lines.ReadString('\n')
	if err != nil {
		c.tb.Fatalf("the child said %q and no more: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *child) number() int64 {
	c.tb.Helper()
	line := c.line()
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		c.tb.Fatalf("the child said %s", line)
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

// roleHold waits for a name, prints the token, and keeps the name until its input ends. A third
// argument is its limit.
func roleHold(s *Store, args []string) error {
	ttl, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	req := request(args[0], ttl)
	if len(args) > 2 {
		req.Limit, _ = strconv.Atoi(args[2])
	}
	token, err := takeTurn(s, req, func() { fmt.Println(0) })
	if err != nil {
		return err
	}
	fmt.Println(token)
	return awaitEOF()
}

// roleAcquire takes and releases a name, and prints the token, or what has come of it.
func roleAcquire(s *Store, args []string) error {
	req := request(args[0], time.Hour)
	res, err := s.Acquire(context.Background(), req)
	switch {
	case err != nil:
		fmt.Println(driver.IsNotApplied(err), err)
		return nil
	case !res.Granted:
		fmt.Println("held by", res.Held.Holder)
		return nil
	}
	err = release(s, req)
	fmt.Println(res.Token)
	return err
}

// takeTurn waits until an owner has its name, and returns the token. It calls waits when it begins
// to wait. It does what package holdfast does, and looks at its place once in 4 s.
func takeTurn(s *Store, req driver.Request, waits func()) (int64, error) {
	const place = 12 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	notices := make(chan struct{}, 1)
	defer s.Notify(func(_, owner string, _ int64) {
		if owner == req.Owner || owner == "" {
			select {
			case notices <- struct{}{}:
			default:
			}
		}
	})()
	req.Place = place
	res, err := s.Acquire(ctx, req)
	if err != nil || res.Granted {
		return res.Token, err
	}
	waits()
	for {
		select {
		case <-notices:
		case <-time.After(place / 3):
		}
		now, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		switch {
		case err != nil:
			return 0, err
		case now[0].State == driver.Held:
			return now[0].Token, nil
		case now[0].State == driver.Lost:
			return 0, errors.New("the place is lost")
		}
	}
}

var owners atomic.Int64

// request is a request of an owner of its own.
func request(name string, ttl time.Duration) driver.Request {
	owner := fmt.Sprintf("owner-%d-%d", os.Getpid(), owners.Add(1))
	return driver.Request{Name: name, Owner: owner, Holder: "holder-of-" + owner, TTL: ttl}
}

// openTest opens a store that is closed in the end.
func openTest(tb testing.TB, dir string) *Store {
	tb.Helper()
	h, err := thisHost()
	if err != nil {
		tb.Fatal(err)
	}
	return openTestOn(tb, h, dir)
}

func openTestOn(tb testing.TB, h host, dir string) *Store {
	tb.Helper()
	s, err := openWithHost(h, dir, nil)
	if err != nil {
		tb.Fatal(err)
	}
	s.Notify(func(string, string, int64) {}) // Without a function no notice is expected.
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

// Verbs, as tests use them.
var (
	granted    = storecheck.Grant
	refused    = storecheck.Refuse
	renewed    = storecheck.State
	eventually = storecheck.Eventually
)

// grantedTo takes a name that must be free, and returns the request and its token.
func grantedTo(tb testing.TB, s *Store, req driver.Request) (driver.Request, int64) {
	tb.Helper()
	res, err := s.Acquire(context.Background(), req)
	if err != nil {
		tb.Fatal(err)
	}
	if !res.Granted {
		tb.Fatalf("%q is not granted: %v", req.Name, res.Held)
	}
	return req, res.Token
}

func release(s *Store, req driver.Request) error {
	ok, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err == nil && !ok {
		err = errors.New("there was nothing to release")
	}
	return err
}

func released(tb testing.TB, s *Store, req driver.Request) {
	tb.Helper()
	if err := release(s, req); err != nil {
		tb.Fatal(err)
	}
}

// next takes and releases a name, and returns the token.
func next(t *testing.T, s *Store, name string) int64 {
	t.Helper()
	req, token := granted(t, s, name, time.Minute)
	released(t, s, req)
	return token
}

func rises(tb testing.TB, what string, last *int64, token int64) {
	tb.Helper()
	if token <= *last {
		tb.Fatalf("%s the token %d is granted, after %d", what, token, *last)
	}
	*last = token
}

// wantError checks that err is the wanted one and mentions all of the texts.
func wantError(tb testing.TB, err, want error, texts ...string) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("the error is %v, want %v", err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			tb.Errorf("the error does not mention %q: %v", text, err)
		}
	}
}

func files(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// writeFile writes a file at once: a Store that looks at it meanwhile sees no part of it.
func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	made := path + ".new"
	if err := errors.Join(os.WriteFile(made, []byte(text), 0o600), os.Rename(made, path)); err != nil {
		tb.Fatal(err)
	}
}

// pathOf returns the path of the shard of a name.
func (s *Store) pathOf(name string) string {
	return filepath.Join(s.dir, shardFile(newState(name, "").number))
}

// die ends a Store as the kernel ends one whose process is killed.
func (s *Store) die() {
	own := s.Session()
	s.isClosing.Store(true)
	s.close()
	own.Close()
}

// sessionFile returns the name of the file of the session, which there is.
func (s *Store) sessionFile() string { return sessionFile(s.folder.session.id) }

// A fakeHost is a host whose clocks the test sets. It can be rebooted, and lose power.
type fakeHost struct {
	boots int
	wall  atomic.Int64 // nanoseconds
	up    atomic.Int64

	mu      sync.Mutex
	broken  error             // what flushing fails with
	flushed map[string]string // contents by path
}

func newFakeHost() *fakeHost {
	f := &fakeHost{boots: 1, flushed: map[string]string{}}
	f.wall.Store(time.Now().UnixNano())
	f.up.Store(int64(time.Hour))
	return f
}

func (f *fakeHost) host() host {
	return host{
		boot:   fmt.Sprint("boot-", f.boots),
		uptime: func() time.Duration { return time.Duration(f.up.Load()) },
		wall:   func() time.Time { return time.Unix(0, f.wall.Load()) },
		flush: func(file *os.File) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			contents, _ := os.ReadFile(file.Name()) // nothing of a folder
			if f.broken == nil {
				f.flushed[filepath.Clean(file.Name())] = string(contents)
			}
			return f.broken
		},
	}
}

func (f *fakeHost) setBroken(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
}

func (f *fakeHost) pass(d time.Duration) {
	f.step(d)
	f.up.Add(int64(d))
}

// step sets the wall clock alone.
func (f *fakeHost) step(d time.Duration) { f.wall.Add(int64(d)) }

// reboot takes effect for stores that are opened after it. A boot takes a minute.
func (f *fakeHost) reboot() {
	f.boots++
	f.up.Store(int64(time.Second))
	f.step(time.Minute)
}
