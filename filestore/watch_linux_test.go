package filestore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func watch(tb testing.TB, s *Store, name string) <-chan struct{} {
	tb.Helper()
	signals, err := s.Watch(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return signals
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
func takeOver(tb testing.TB, s *Store, dir string) time.Duration {
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

// BenchmarkTakeOver measures it from the SIGKILL to the grant.
func BenchmarkTakeOver(b *testing.B) {
	dir := b.TempDir()
	s := openTest(b, dir)
	var times []time.Duration
	for b.Loop() {
		times = append(times, takeOver(b, s, dir))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(times[len(times)-1].Microseconds()), "max-µs")
}

// BenchmarkHandOver measures from a Release to the grant to one who waits.
func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	giver, taker := openTest(b, dir), openTest(b, dir)
	signals := watch(b, taker, "name")
	req := request("name", time.Hour)
	for b.Loop() {
		held, _ := granted(b, giver, "name", time.Hour)
		released(b, giver, held)
		for {
			signaled(b, signals)
			if res, err := taker.Acquire(b.Context(), req); err != nil {
				b.Fatal(err)
			} else if res.Granted {
				break
			}
		}
		released(b, taker, req)
	}
}

// TestWatchLearnsOfNewHolders: the death of whoever holds the name is a signal,
// also if that has changed since the watch began, or was nobody then.
func TestWatchLearnsOfNewHolders(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	signals := watch(t, s, "name")
	for range 3 {
		c := start(t, command("hold", dir, "name", "1h"))
		c.number()
		eventually(t, "the watch knows the holder", func() bool {
			s.watcher.mu.Lock()
			defer s.watcher.mu.Unlock()
			return s.watcher.names["name"].holder != nil
		})
		drainSignals(signals)
		c.kill()
		signaled(t, signals)
		if _, held, err := s.Lookup(t.Context(), "name"); held || err != nil {
			t.Fatalf("after the signal the name is held: %v", err)
		}
		req, _ := granted(t, s, "name", time.Hour)
		released(t, s, req)
	}
}

func drainSignals(signals <-chan struct{}) {
	select {
	case <-signals:
	default:
	}
}

// TestWatchWaitsForTheUnlock: the kernel tells of a close before it unlocks the
// file, so that the signal must wait for that.
func TestWatchWaitsForTheUnlock(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	holder, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	granted(t, holder, "name", time.Hour)
	signals := watch(t, s, "name")
	another, err := os.OpenFile(holder.Session().Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	another.Close() // as the holder would, but for the lock
	select {
	case <-signals:
		t.Error("a waiter is woken while the holder is alive")
	case <-time.After(50 * time.Millisecond):
	}
	if err := holder.Session().Close(); err != nil {
		t.Fatal(err)
	}
	signaled(t, signals)
	granted(t, s, "name", time.Hour)
}

// TestWatchIgnores: what does not concern waiters wakes none.
func TestWatchIgnores(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := openTest(t, dir), openTest(t, dir)
	req, _ := granted(t, holder, "name", time.Hour)
	signals := watch(t, waiter, "name")
	for range 100 {
		outcomes, err := holder.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: req.Owner, TTL: time.Hour}})
		if err != nil || outcomes[0] != driver.Renewed {
			t.Fatal(outcomes, err)
		}
		refused(t, waiter, "name")
	}
	other := watch(t, waiter, "other")
	notSignalled := func(what string) {
		// Events come in order: when that of another name is here, they all were.
		nextOf(t, holder, "other")
		signaled(t, other)
		select {
		case <-signals:
			t.Errorf("a waiter is woken by %s", what)
		default:
		}
	}
	notSignalled("a renewal or a refusal")
	released(t, holder, req)
	signaled(t, signals)
	req, _ = granted(t, holder, "name", time.Hour)
	notSignalled("a grant, after it was woken by the release")
	released(t, holder, req)
	signaled(t, signals)
}

// TestWatchMissesNoTurn: a name that was released and taken again before anybody
// could look is a signal, as is a whole turn that was missed.
func TestWatchMissesNoTurn(t *testing.T) {
	s := openTest(t, t.TempDir())
	held, first := granted(t, s, "name", time.Hour)
	signals := watch(t, s, "name")
	n := s.watcher.names["name"]
	for what, change := range map[string]func(){
		"of a release and a grant": func() { n.held, n.token = true, first },
		"of a whole turn":          func() { n.held, n.token = false, first-1 },
	} {
		released(t, s, held)
		held, _ = granted(t, s, "name", time.Hour)
		eventually(t, "the watch knows the holder", func() bool {
			s.watcher.mu.Lock()
			defer s.watcher.mu.Unlock()
			return n.held && n.token == readRecord(t, s, "name").Token
		})
		drainSignals(signals)
		s.watcher.mu.Lock()
		change()
		missed := s.watcher.refresh(s, n)
		s.watcher.mu.Unlock()
		if !missed {
			t.Errorf("nobody is woken %s", what)
		}
	}
}

func nextOf(t *testing.T, s *Store, name string) {
	t.Helper()
	req, _ := granted(t, s, name, time.Hour)
	released(t, s, req)
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
		eventually(t, "the watch knows the holder", func() bool {
			s.watcher.mu.Lock()
			defer s.watcher.mu.Unlock()
			return s.watcher.names["name"].held
		})
		drainSignals(signals)
		released(t, other, req)
		signaled(t, signals)
	}
}

// TestWatchOverflow: when events were lost everybody is woken.
func TestWatchOverflow(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	granted(t, s, "a", time.Hour)
	granted(t, s, "b", time.Hour)
	a, b := watch(t, s, "a"), watch(t, s, "b")
	s.watcher.handleEvent(t.Context(), s, inotifyEvent{wd: -1, mask: syscall.IN_Q_OVERFLOW})
	signaled(t, a)
	signaled(t, b)
}

// TestWatchesEnd: nothing is left of a watch that has ended, in the store or in
// the kernel.
func TestWatchesEnd(t *testing.T) {
	dir := t.TempDir()
	s, holder := openTest(t, dir), openTest(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 100 {
		name := fmt.Sprint("name", i%10)
		if i < 10 {
			granted(t, holder, name, time.Hour)
		}
		if _, err := s.Watch(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if n := kernelWatches(t, s); n != 11 {
		t.Errorf("the kernel has %d watches, want 10 records and a session", n)
	}
	cancel()
	eventually(t, "the watches end", func() bool { return kernelWatches(t, s) == 0 })
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := len(w.names) + len(w.recordsByWatch) + len(w.sessionsByID) + len(w.sessionsByWatch); left > 0 {
		t.Errorf("%d things are left in the watcher", left)
	}
}

func kernelWatches(tb testing.TB, s *Store) int {
	tb.Helper()
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", s.watcher.queue.fd))
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Count(info, []byte("inotify wd:"))
}

// TestWatchWithoutInotify: where the kernel has no room for a watch the caller is
// told that it must try at intervals.
func TestWatchWithoutInotify(t *testing.T) {
	c := start(t, command("watchless", t.TempDir()))
	if line := c.line(); line != "not supported" {
		t.Error(line)
	}
	c.finish()
}

func init() { roles["watchless"] = roleWatchless }

// roleWatchless watches where no more files can be opened.
func roleWatchless(args []string) error {
	s, err := New(args[0], nil)
	if err != nil {
		return err
	}
	defer s.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	few := limit
	few.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		return err
	}
	_, err = s.Watch(context.Background(), "name")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if err == nil || !driver.Permanent(err) {
		return fmt.Errorf("the error is %v", err)
	}
	fmt.Println("not supported")
	_, err = s.Watch(context.Background(), "name") // There is room again.
	return err
}
