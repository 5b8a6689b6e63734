package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A session that is made while others sweep the folder keeps its file: without it, it would be
// dead.
func TestSessionBesideSweeps(t *testing.T) {
	dir := t.TempDir()
	f, _, err := openTest(t, dir).currentFolder(true)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for !stop.Load() {
				f.sweep()
			}
		})
	}
	defer group.Wait()
	defer stop.Store(true)
	for range 200 {
		s := openTest(t, dir)
		next(t, s, "name")
		s.Close()
	}
}

// TestKilledAnywhere kills a process that does nothing but take, renew and release a lock, again
// and again: whatever it was about, the lock is free after it, and tokens go on rising. In the end
// no session of a dead process is left.
func TestKilledAnywhere(t *testing.T) {
	kills := 20
	if os.Getenv("TEST_WHOLE") != "" {
		kills = 10_000
	}
	dir, last := t.TempDir(), int64(0)
	s := openTest(t, dir)
	granted(t, s, "in use", time.Hour)
	for i := range kills {
		name := fmt.Sprint("name ", i%5)
		waiter := start(t, command("hold", dir, name, "1h"))
		waiter.number()
		c := start(t, command("churn", dir, name, fmt.Sprint("for ", i)))
		for range i%20 + 1 {
			rises(t, "to the child", &last, c.number())
		}
		if i%2 == 0 {
			waiter.kill()
		}
		_ = c.Process.Kill()
		for rest := bufio.NewScanner(c.lines); rest.Scan(); {
			if token, err := strconv.ParseInt(rest.Text(), 10, 64); err == nil {
				last = max(last, token) // The last line may be cut short.
			}
		}
		_ = c.Wait()
		waiter.kill()
		last = max(last, next(t, s, name))
		rises(t, "after the child", &last, next(t, s, fmt.Sprint("for ", i)))
	}
	eventually(t, "no session of a dead process is left", func() bool {
		again := openTest(t, dir) // It sweeps when it takes its first lock.
		last = max(last, next(t, again, "name 0"))
		_ = again.Close()
		for rec := range s.List(t.Context(), "") {
			if rec.Name != "in use" {
				return false
			}
		}
		return !slices.ContainsFunc(files(t, dir), func(file string) bool {
			return strings.HasPrefix(file, sessionFile("")) && file != s.sessionFile()
		})
	})
}

// roleChurn takes and releases a name, and waits for another, until it is killed.
func roleChurn(s *Store, args []string) error {
	ctx := context.Background()
	for {
		place := request(args[0], time.Hour)
		place.Place = time.Hour
		if _, err := s.Acquire(ctx, place); err != nil {
			return err
		}
		req := request(args[1], time.Hour)
		res, err := s.Acquire(ctx, req)
		if err != nil || !res.Granted {
			return fmt.Errorf("not granted: %w", err)
		}
		fmt.Println(res.Token)
		if _, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: 2 * time.Hour}}); err != nil {
			return err
		}
		if err := errors.Join(release(s, req), release(s, place)); err != nil {
			return err
		}
	}
}

// A power loss leaves the folder as it is at some moment while processes use it: it can be used at
// once after it, all is free, and tokens rise.
func TestPowerLossWhileRunning(t *testing.T) {
	losses := 20
	if os.Getenv("TEST_WHOLE") != "" {
		losses = 1000
	}
	dir, names := t.TempDir(), []string{"a", "b", "c"}
	last := make([]atomic.Int64, len(names))
	for i, name := range names {
		c := start(t, command("churn", dir, "all", name))
		last[i].Store(c.number())
		go func() {
			for rest := bufio.NewScanner(c.lines); rest.Scan(); {
				if token, err := strconv.ParseInt(rest.Text(), 10, 64); err == nil && len(rest.Text()) == len(fmt.Sprint(last[i].Load())) {
					last[i].Store(token)
				}
			}
		}()
	}
	for n := range losses {
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		copied, before := filepath.Join(t.TempDir(), "copy"), []int64{last[0].Load(), last[1].Load(), last[2].Load()}
		if err := os.Mkdir(copied, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files(t, dir) {
			if file == older || strings.HasPrefix(file, sessionFile("")) {
				continue // Nobody reads a pipe after it.
			}
			contents, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				writeFile(t, filepath.Join(copied, file), string(contents))
			} else if !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		f := newFakeHost()
		f.pass(time.Minute)
		f.reboot()
		s := openTestOn(t, f.host(), copied)
		for rec, err := range s.List(t.Context(), "") {
			t.Fatalf("after the power loss %d List yields %v, %v", n, rec, err)
		}
		for i, name := range names {
			rises(t, fmt.Sprintf("after the power loss %d", n), &before[i], next(t, s, name))
		}
		next(t, s, "all")
		_ = s.Close()
		_ = os.RemoveAll(copied)
	}
}

// A child that has inherited the session keeps the holds of a parent that was killed, until it
// ends.
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
func roleInherit(s *Store, args []string) error {
	res, err := s.Acquire(context.Background(), request(args[0], time.Hour))
	if err != nil || !res.Granted {
		return fmt.Errorf("not granted: %w", err)
	}
	cmd := command("sleep", s.Dir())
	cmd.ExtraFiles = []*os.File{s.Session()}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	return awaitEOF()
}

// Those that wait get their turn in the order in which they came, over processes. The dead among
// them hold up nobody for long, also if they have died at once, in any order, the holder with them.
func TestOrderOverProcesses(t *testing.T) {
	limit := 3500 * time.Millisecond // A renewal is due in 4 s.
	for range 2 {
		dir, last := t.TempDir(), int64(0)
		var line []*child
		for i := range 14 {
			line = append(line, start(t, command("hold", dir, "name", "1h")))
			if n := line[i].number(); n > 0 {
				rises(t, "to the first", &last, n)
			}
		}
		dying := []int{0, 1, 2, 3, 4, 7, 9, 10}
		for _, i := range rand.Perm(len(dying)) {
			if err := line[dying[i]].Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range line {
			if slices.Contains(dying, i) {
				continue
			}
			began := time.Now()
			rises(t, "in line", &last, c.number())
			if took := time.Since(began); took > limit {
				t.Errorf("%d has waited for %v", i, took)
			}
			if i == 5 {
				c.kill()
			} else {
				c.finish()
			}
		}
	}
}

// roleShare waits for its input to begin, and then takes many new names.
func roleShare(s *Store, _ []string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	for i := range 50 {
		if _, err := s.Acquire(context.Background(), request(fmt.Sprint("name", i), time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

// Close ends what the Store holds, and leaves no session.
func TestClose(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, s, "name", time.Hour)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := files(t, s.dir); len(left) != 2 { // the file of the name, and the folder for older versions
		t.Errorf("the folder has %q", left)
	}
	next(t, openTest(t, s.dir), "name")
}

// A process that is stopped with a kernel lock holds up a request until its context ends, and no
// longer. Other names go on, also in the same request.
func TestHeldUp(t *testing.T) {
	s := openTest(t, t.TempDir())
	req, _ := granted(t, s, "name", time.Hour)
	other, _ := granted(t, s, "other", time.Hour)
	file, err := os.Open(s.pathOf("name"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := setLock(file, exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: req.Owner})
	wantError(t, err, context.DeadlineExceeded, file.Name(), "stopped")
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second) // time enough for a busy disk
	defer cancel()
	entries, err := s.Renew(ctx, []driver.RenewRequest{
		{Name: "name", Owner: req.Owner, TTL: time.Hour}, {Name: "other", Owner: other.Owner, TTL: time.Hour},
	})
	if err == nil || driver.IsNotApplied(err) || entries[0].State != driver.Unknown || entries[1].State != driver.Held {
		t.Errorf("%v, %v", entries, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Acquire(ctx, request("name", time.Hour))
	wantError(t, err, driver.ErrNotApplied) // It has not had its turn.
	file.Close()
	time.Sleep(100 * time.Millisecond) // What was waited for comes, and nobody wants it any more.
	if records, err := openTest(t, s.dir).Lookup(t.Context(), "name"); err != nil || len(records) != 1 {
		t.Error(records, err)
	}
	released(t, s, req)
}

// The limit of this store: a lock that is held is free once its file, or that of the session, is
// deleted. The tokens distinguish the two holders, and the first learns of it when it renews. What
// is acquired after it excludes others.
func TestDeletedFile(t *testing.T) {
	for what, deleted := range map[string]func(s *Store) string{
		"locks":   func(s *Store) string { return s.pathOf("name") },
		"session": func(s *Store) string { return filepath.Join(s.dir, s.sessionFile()) },
	} {
		t.Run(what, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			other := openTest(t, s.dir)
			req, first := granted(t, s, "name", time.Hour)
			if err := os.Remove(deleted(s)); err != nil {
				t.Fatal(err)
			}
			if _, second := granted(t, other, "name", time.Hour); second <= first {
				t.Errorf("token %d after %d", second, first)
			}
			now, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
			if err != nil || now[0].State != driver.Lost {
				t.Errorf("Renew: %v, %v", now, err)
			}
			granted(t, s, "later", time.Hour)
			refused(t, other, "later")
		})
	}
}
