package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// watch has an owner of its own wait for a name, and returns a channel that receives a value after
// its notices.
func watch(tb testing.TB, s *engine, name string) <-chan struct{} {
	tb.Helper()
	signals := asksFor(tb, s, name)
	req := waitRequest(name)
	if ok := s.addWaiter(tb.Context(), &req); !ok {
		tb.Fatal("the store is closed")
	}
	return signals
}

// asksFor returns a channel that receives a value after the notices for a name.
func asksFor(tb testing.TB, s *engine, name string) <-chan struct{} {
	asks := make(chan struct{}, 1)
	tb.Cleanup(s.Notify(func(n olddriver.Notice) {
		if n.Kind != olddriver.Ask || n.Name != name {
			return
		}
		select {
		case asks <- struct{}{}:
		default:
		}
	}))
	return asks
}

// waitRequest is a request of an owner of its own that waits.
func waitRequest(name string) olddriver.AcquireRequest {
	req := request(name, time.Hour)
	req.Queue = time.Hour
	return req
}

// acquireQueued requests a name that another owner holds.
func acquireQueued(tb testing.TB, s *engine, req olddriver.AcquireRequest) {
	tb.Helper()
	if res, err := s.Acquire(tb.Context(), req); err != nil || res.Granted || !res.Queued {
		tb.Fatalf("Acquire with Queue: %+v, %v", res, err)
	}
}

func signaled(tb testing.TB, signals <-chan struct{}) {
	tb.Helper()
	select {
	case <-signals:
	case <-time.After(20 * time.Second):
		tb.Fatal("no signal came")
	}
}

// takeOver waits for a name that a process holds, kills that, and returns how
// long after that the name was ours.
func takeOver(tb testing.TB, s *engine, dir string) time.Duration {
	tb.Helper()
	c := start(tb, command("hold", dir, "name", "1h"))
	first := c.number()
	signals := watch(tb, s, "name")
	refused(tb, s, "name")
	killed := time.Now()
	if err := c.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	for {
		signaled(tb, signals)
		req := request("name", time.Hour)
		res, err := s.Acquire(tb.Context(), req)
		if err != nil {
			tb.Fatal(err)
		}
		if !res.Granted {
			continue
		}
		took := time.Since(killed)
		if res.Token <= first {
			tb.Fatalf("the token %d is granted after %d", res.Token, first)
		}
		released(tb, s, req)
		c.kill()
		return took
	}
}

// TestTakeOver: who waits by signals alone gets the lock of a killed process.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	for range 10 {
		took := takeOver(t, s, dir)
		if took > 20*time.Second {
			t.Errorf("the take-over took %v", took)
		}
	}
}

func drainSignals(signals <-chan struct{}) {
	select {
	case <-signals:
	default:
	}
}

// A waiter that has missed that the name went from one hold to another is notified of the end of
// the new one.
func TestWatchOfAHoldThatExpires(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := openTest(t, dir), openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	signals := watch(t, waiter, "name")
	for range 3 {
		waiter.watcher.mu.Lock() // Both changes are one for the waiter.
		released(t, holder, held)
		granted(t, holder, "name", 100*time.Millisecond)
		waiter.watcher.mu.Unlock()
		signaled(t, signals)
		if _, held, err := waiter.Lookup(t.Context(), "name"); held || err != nil {
			t.Fatalf("after the notice the name is held: %v", err)
		}
		held, _ = granted(t, holder, "name", time.Hour)
		awaitHeld(t, waiter)
		drainSignals(signals)
	}
}

// awaitHeld waits until the watcher of s has read that the name is held.
func awaitHeld(t *testing.T, s *engine) {
	t.Helper()
	eventually(t, "the watch has the hold", func() bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		return s.watcher.names["name"].rec.State == stateHeld
	})
}

// TestWatchOutlivesItsFile: a record that is deleted, by a sweep or by a person,
// is a signal, and so are the releases after it.
func TestWatchOutlivesItsFile(t *testing.T) {
	dir := t.TempDir()
	s, other := openTest(t, dir), openTest(t, dir)
	signals := watch(t, s, "name")
	for range 5 {
		if err := os.Remove(s.recordPath("name")); err != nil {
			t.Fatal(err)
		}
		signaled(t, signals)
		req, _ := granted(t, other, "name", time.Hour)
		awaitHeld(t, s)
		drainSignals(signals)
		released(t, other, req)
		signaled(t, signals)
	}
}

// All of many processes that wait for a name get their turn, by notices alone.
func TestManyWait(t *testing.T) {
	const waiters = 48
	dir := t.TempDir()
	holder := openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	turns := make(chan error, waiters)
	for range waiters {
		s := openTest(t, dir)
		asks := asksFor(t, s, "name")
		req := waitRequest("name")
		acquireQueued(t, s, req)
		go func() {
			for {
				select {
				case <-asks:
				case <-t.Context().Done():
					return
				}
				res, err := s.Acquire(t.Context(), req)
				if err == nil && !res.Granted {
					continue
				}
				if err == nil {
					_, err = s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
				}
				turns <- err
				return
			}
		}()
	}
	released(t, holder, held)
	for i := range waiters {
		select {
		case err := <-turns:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d waiters have had their turn", i, waiters)
		}
	}
}

// TestWaitWithoutInotify: where the kernel has no room for a watch, a waiter is notified all the
// same.
func TestWaitWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	holder := openTest(t, dir)
	for range 5 {
		held, _ := granted(t, holder, "name", time.Hour)
		cmd := command("watchless", dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		c := start(t, cmd)
		if line := c.line(); line != "waits" {
			t.Fatal(line)
		}
		began := time.Now()
		released(t, holder, held)
		if line := c.line(); line != "granted" {
			t.Fatal(line)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the name was taken after %v", took)
		}
		c.finish()
	}
}

func init() { roles["watchless"] = roleWatchless }

// roleWatchless waits for a name by notices alone, in a user namespace without inotify.
func roleWatchless(args []string) error {
	if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0o600); err != nil {
		return err
	}
	if _, err := newInotify(); err == nil {
		return errors.New("there is room for a watch")
	}
	s, err := newEngine(args[0], nil)
	if err != nil {
		return err
	}
	defer s.Close()
	asks := make(chan struct{}, 1)
	defer s.Notify(func(olddriver.Notice) {
		select {
		case asks <- struct{}{}:
		default:
		}
	})()
	req := waitRequest("name")
	for i := 0; ; i++ {
		res, err := s.Acquire(context.Background(), req)
		if err != nil {
			return err
		}
		if res.Granted {
			fmt.Println("granted")
			_, err = s.Release(context.Background(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		}
		if i == 0 {
			fmt.Println("waits")
		}
		<-asks
	}
}
