package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// TestKilledHolder: the locks of a killed process are free at once.
func TestKilledHolder(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	for range 3 {
		c := start(t, command("hold", dir, "name", "1h"))
		first := c.number()
		refused(t, s, "name")
		if rec, held, err := s.Lookup(t.Context(), "name"); err != nil || !held || rec.Token != first {
			t.Fatalf("Lookup: %+v, %v, %v", rec, held, err)
		}
		c.kill()
		if rec, held, err := s.Lookup(t.Context(), "name"); err != nil || held {
			t.Errorf("the hold of a dead process is looked up: %+v, %v", rec, err)
		}
		for rec, err := range s.List(t.Context(), "") {
			t.Errorf("the hold of a dead process is listed: %+v, %v", rec, err)
		}
		if rec, broken, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "name"}); err != nil || broken {
			t.Errorf("the hold of a dead process is broken: %+v, %v", rec, err)
		}
		req, second := granted(t, s, "name", time.Hour)
		if second <= first {
			t.Errorf("the token %d is granted after %d", second, first)
		}
		released(t, s, req)
	}
}

// TestKilledAnywhere kills a process that does nothing but take and release a
// lock, again and again: whatever it was about, the lock is free after it, and
// tokens go on rising.
func TestKilledAnywhere(t *testing.T) {
	dir, last := t.TempDir(), int64(0)
	s := openTest(t, dir)
	for i := range 20 {
		c := start(t, command("churn", dir, "name"))
		for range i + 1 {
			rises(t, "to the child", &last, c.number())
		}
		_ = c.Process.Kill()
		for rest := bufio.NewScanner(c.lines); rest.Scan(); {
			if token, err := strconv.ParseInt(rest.Text(), 10, 64); err == nil {
				last = max(last, token) // The last line may be cut short.
			}
		}
		_ = c.Wait()
		rises(t, "after the child", &last, nextIn(t, s, "name"))
	}
}

// roleChurn takes and releases a name until it is killed.
func roleChurn(args []string) error {
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	for {
		req := request(args[1], time.Hour)
		res, err := s.Acquire(context.Background(), req)
		if err != nil || !res.Granted {
			return fmt.Errorf("not granted: %w", err)
		}
		fmt.Println(res.Token)
		_, err = s.Renew(context.Background(), []olddriver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: 2 * time.Hour}})
		if err != nil {
			return err
		}
		if _, err := s.Release(context.Background(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
			return err
		}
	}
}

// TestInheritedSession: a child that has inherited the session keeps the holds
// of a parent that was killed, until it ends.
func TestInheritedSession(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	parent := start(t, command("inherit", dir, "name"))
	grandchild := int(parent.number())
	process, err := os.FindProcess(grandchild)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Kill()
	parent.kill()
	refused(t, s, "name")
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the name is free", func() bool {
		res, err := s.Acquire(t.Context(), request("name", time.Hour))
		return err == nil && res.Granted
	})
}

// roleInherit takes a name and starts a child that inherits the session.
func roleInherit(args []string) error {
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	res, err := s.Acquire(context.Background(), request(args[1], time.Hour))
	if err != nil || !res.Granted {
		return fmt.Errorf("not granted: %w", err)
	}
	cmd := command("sleep")
	cmd.ExtraFiles = []*os.File{s.Session()}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	return awaitEOF()
}

// roleSleep never ends by itself.
func roleSleep([]string) error {
	read, _, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = read.Read(make([]byte, 1))
	return err
}

// TestMissingSession: that the file of a session is missing proves nothing.
func TestMissingSession(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	c := start(t, command("hold", dir, "name", "1h"))
	c.number()
	rec := readRecord(t, s, "name")
	if err := os.Remove(s.sessionPath(rec.Session)); err != nil {
		t.Fatal(err)
	}
	refused(t, s, "name")
	c.kill()
	refused(t, s, "name")
}

func readRecord(tb testing.TB, s *engine, name string) record {
	tb.Helper()
	data, err := os.ReadFile(s.recordPath(name))
	if err != nil {
		tb.Fatal(err)
	}
	rec, err := decodeRecord(data)
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

// TestClose: holds stay until their TTL, every call is refused, and the session
// is gone.
func TestClose(t *testing.T) {
	dir := t.TempDir()
	s, err := newEngine(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	req, _ := granted(t, s, "name", time.Hour)
	session := s.sessionPath(s.session.id)
	early, err := os.Open(session) // as one who is about to look whether it is dead
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := os.Stat(session); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the session is still there: %v", err)
	}
	if info, err := early.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the closed session looks like a dead one: %v, %v", info.Size(), err)
	}
	refused(t, openTest(t, dir), "name")

	ctx := t.Context()
	_, err = s.Acquire(ctx, req)
	wantError(t, err, driver.ErrClosed)
	_, err = s.Renew(ctx, []olddriver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
	wantError(t, err, driver.ErrClosed)
	_, err = s.Release(ctx, olddriver.ReleaseRequest{Name: "name", Owner: req.Owner})
	wantError(t, err, driver.ErrClosed)
	if s.Session() != nil {
		t.Error("a closed store has a session")
	}
}

// TestHeldUpFile: a process that is stopped with the record locked holds up a
// request until its context ends, and no longer.
func TestHeldUpFile(t *testing.T) {
	s := openTest(t, t.TempDir())
	req, _ := granted(t, s, "name", time.Hour)
	e, err := s.openRecord(t.Context(), "name", exclusive)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = s.Release(ctx, olddriver.ReleaseRequest{Name: "name", Owner: req.Owner})
	wantError(t, err, context.DeadlineExceeded, s.recordPath("name"), "stopped")
	wantError(t, err, driver.ErrNotApplied)
	granted(t, s, "another", time.Hour)
	e.Close()
	released(t, s, req)
}

// A Store that nobody refers to any more is not taken for dead.
func TestForgottenStore(t *testing.T) {
	dir := t.TempDir()
	func() {
		s, err := newEngine(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		granted(t, s, "name", time.Hour)
	}()
	s := openTest(t, dir)
	for range 5 {
		runtime.GC()
		refused(t, s, "name")
	}
}
