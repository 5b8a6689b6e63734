package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// watch has an owner of its own wait for a name, and returns a channel that receives a value after
// its notices.
func watch(tb testing.TB, s *Store, name string) <-chan struct{} {
	tb.Helper()
	signals := asksFor(tb, s, name)
	req := waitRequest(name)
	if _, ok := s.addWaiter(tb.Context(), &req); !ok {
		tb.Fatal("the store is closed")
	}
	return signals
}

// asksFor returns a channel that receives a value after the notices for a name.
func asksFor(tb testing.TB, s *Store, name string) <-chan struct{} {
	asks := make(chan struct{}, 1)
	tb.Cleanup(s.Notify(func(n driver.Notice) {
		if n.Kind != driver.Ask || n.Name != name {
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
func waitRequest(name string) driver.AcquireRequest {
	req := request(name, time.Hour)
	req.Queue = time.Hour
	return req
}

// acquireQueued requests a name that another owner holds.
func acquireQueued(tb testing.TB, s *Store, req driver.AcquireRequest) {
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
			return s.watcher.names["name"].holders != nil
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
func awaitHeld(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, "the watch has the hold", func() bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		return s.watcher.names["name"].rec.State == stateHeld
	})
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
		awaitHeld(t, s)
		drainSignals(signals)
		released(t, other, req)
		signaled(t, signals)
	}
}

// A waiter goes on watching a record whose attributes were changed.
func TestWatchOutlivesChmod(t *testing.T) {
	dir := t.TempDir()
	s, holder := openTest(t, dir), openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	signals := watch(t, s, "name")
	if err := os.Chmod(s.recordPath("name"), 0o640); err != nil {
		t.Fatal(err)
	}
	signaled(t, signals)
	released(t, holder, held)
	signaled(t, signals)
}

// TestWatchOverflow: when events were lost everybody is woken.
func TestWatchOverflow(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	granted(t, s, "a", time.Hour)
	granted(t, s, "b", time.Hour)
	a, b := watch(t, s, "a"), watch(t, s, "b")
	s.watcher.handleEvent(s, -1, syscall.IN_Q_OVERFLOW)
	signaled(t, a)
	signaled(t, b)
}

// TestWatchesEnd: nothing is left of a wait that has ended, in the store or in the kernel, whatever
// ended it.
func TestWatchesEnd(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, s *Store, req driver.AcquireRequest){
		"a release of the waiter": func(t *testing.T, s *Store, req driver.AcquireRequest) {
			if ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); ours || err != nil {
				t.Errorf("Release by a waiter: %v, %v", ours, err)
			}
		},
		"a grant": func(t *testing.T, s *Store, req driver.AcquireRequest) {
			if _, broken, err := s.Break(t.Context(), driver.BreakRequest{Name: req.Name}); !broken || err != nil {
				t.Errorf("Break: %v, %v", broken, err)
			}
			if res, err := s.Acquire(t.Context(), req); !res.Granted || err != nil {
				t.Errorf("Acquire: %+v, %v", res, err)
			}
		},
		"the time": func(t *testing.T, s *Store, req driver.AcquireRequest) {
			s.watcher.mu.Lock()
			defer s.watcher.mu.Unlock()
			n := s.watcher.names[req.Name]
			n.owners[req.Owner].until = time.Now().Add(time.Millisecond)
			s.watcher.schedule(s, n)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s, holder := openTest(t, dir), openTest(t, dir)
			var waiting []driver.AcquireRequest
			for i := range 10 {
				held, _ := granted(t, holder, fmt.Sprint("name", i), time.Hour)
				waiting = append(waiting, waitRequest(held.Name))
				acquireQueued(t, s, waiting[i])
				acquireQueued(t, s, waiting[i])
			}
			if n := kernelWatches(t, s); n != 11 {
				t.Errorf("the kernel has %d watches, want 10 records and a session", n)
			}
			for _, req := range waiting {
				end(t, s, req)
			}
			eventually(t, "the watches end", func() bool { return kernelWatches(t, s) == 0 })
			w := &s.watcher
			w.mu.Lock()
			defer w.mu.Unlock()
			left := len(w.names) + len(w.recordsByWatch) + len(w.sessionsByID) + len(w.sessionsByWatch) + w.slots
			if left > 0 || w.slotFile != nil {
				t.Errorf("%d things are left in the watcher, and the file %v", left, w.slotFile)
			}
		})
	}
}

// watches reports whether s watches the name.
func watches(s *Store) bool {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	n := s.watcher.names["name"]
	return n != nil && n.wd != 0
}

// Of many processes that wait for a name few watch it, so that a release wakes few. The others
// watch it when those have gone, and all get their turn by notices alone.
func TestFewWatch(t *testing.T) {
	const waiters = 3 * watchedSlots
	dir := t.TempDir()
	holder := openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	turns := make(chan error, waiters)
	watching := 0
	for range waiters {
		s := openTest(t, dir)
		asks := asksFor(t, s, "name")
		req := waitRequest("name")
		acquireQueued(t, s, req)
		if watches(s) {
			watching++
		}
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
					_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
				}
				turns <- err
				return
			}
		}()
	}
	if watching != watchedSlots {
		t.Errorf("%d of %d waiters watch the name, want %d", watching, waiters, watchedSlots)
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

// A Store that does not watch a name needs no attempts of its owners: it notifies them long after
// Queue. Once it has a slot to watch from, its owners try again, or give up the slot.
func TestUnwatchedPause(t *testing.T) {
	dir := t.TempDir()
	holder := openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	first := waitRequest("name")
	watching := openTest(t, dir)
	acquireQueued(t, watching, first)
	for range watchedSlots - 1 {
		acquireQueued(t, openTest(t, dir), waitRequest("name"))
	}
	s := openTest(t, dir)
	asks := asksFor(t, s, "name")
	req := request("name", time.Hour)
	req.Queue = time.Millisecond
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Queued || res.Pause != unwatchedPause {
		t.Fatalf("Acquire without a slot to watch from: %+v, %v", res, err)
	}
	shared := request("name", time.Hour)
	shared.Queue, shared.Limit = time.Millisecond, driver.Shared
	if res, err := s.Acquire(t.Context(), shared); err != nil || !res.Queued || res.Pause != 0 {
		t.Errorf("Acquire of a shared hold: %+v, %v", res, err)
	}
	eventually(t, "the notices for the other end", func() bool { return !s.watcher.isWaiting("name", shared.Owner) })
	waitFree := request("name", time.Hour)
	waitFree.Queue, waitFree.NoPlace = time.Millisecond, true
	if res, err := s.Acquire(t.Context(), waitFree); err != nil || !res.Queued || res.Pause != 0 {
		t.Errorf("Acquire of a caller that wants no place: %+v, %v", res, err)
	}
	eventually(t, "the notices for it end", func() bool { return !s.watcher.isWaiting("name", waitFree.Owner) })
	s.watcher.mu.Lock()
	n := s.watcher.names["name"]
	s.watcher.moveToSlot(n, noSlot)
	n.slot = nameSlots
	s.watcher.takeSlot(t.Context(), s, n)
	if n.slot < watchedSlots || n.slot >= nameSlots || !n.paused {
		t.Errorf("a move to slot %d, which is not watched, has ended the pause", n.slot)
	}
	s.watcher.mu.Unlock()
	released(t, holder, held)
	signaled(t, asks)
	held, _ = granted(t, holder, "name", time.Hour)
	s.watcher.mu.Lock()
	n = s.watcher.names["name"]
	s.watcher.moveToSlot(n, noSlot)
	n.slot = nameSlots // as if it had found none
	s.watcher.mu.Unlock()
	if _, err := watching.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: first.Owner}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it gives up its slot", func() bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		return s.watcher.names["name"] == nil
	})
	signaled(t, asks)
	released(t, holder, held)
}

// An owner that waits for shared holds tries again within Queue, since it may be the recorded
// waiter.
func TestNoPauseBehindSharedHolds(t *testing.T) {
	dir := t.TempDir()
	shared := request("name", time.Hour)
	shared.Limit = driver.Shared
	if res, err := openTest(t, dir).Acquire(t.Context(), shared); err != nil || !res.Granted {
		t.Fatalf("%+v, %v", res, err)
	}
	for range watchedSlots {
		acquireQueued(t, openTest(t, dir), waitRequest("name"))
	}
	s, req := openTest(t, dir), waitRequest("name")
	for range 2 {
		if res, err := s.Acquire(t.Context(), req); err != nil || !res.Queued || res.Pause != 0 {
			t.Errorf("Acquire behind a shared hold: %+v, %v", res, err)
		}
	}
	if slot := slotOf(s, "name"); slot < watchedSlots {
		t.Errorf("it has slot %d, want one that is not watched", slot)
	}
}

// The death of a holder is noticed in time, too, if the Stores that watch its session are stopped
// and only one waits that does not.
func TestDeathBesideStoppedWatchers(t *testing.T) {
	const stopped = 250
	dir := t.TempDir()
	holder := start(t, command("hold", dir, "name", "1h"))
	holder.number()
	s := openTest(t, dir)
	f, err := s.openExisting(t.Context(), "", tokensFile, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for slot := range stopped {
		if err := slotLock(f, "name", slot, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
	}
	asks := asksFor(t, s, "name")
	if res, err := s.Acquire(t.Context(), waitRequest("name")); err != nil || res.Pause == 0 {
		t.Fatalf("Acquire: %+v, %v", res, err)
	}
	eventually(t, "the Store has read the record", func() bool {
		s.watcher.mu.Lock()
		defer s.watcher.mu.Unlock()
		return s.watcher.names["name"].stamp.mtime != 0
	})
	holder.kill()
	select {
	case <-asks:
	case <-time.After(unreadPause + 4*slotPause*stopped):
		t.Error("no notice after the death of the holder")
	}
}

// slotOf returns the slot of s for a name.
func slotOf(s *Store, name string) int {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	return s.watcher.names[name].slot
}

// A waiter leaves its slot to others when its wait ends, also while its Store waits for other names,
// and those behind it move on.
func TestSlotsMoveOn(t *testing.T) {
	dir := t.TempDir()
	holder, first, second, third := openTest(t, dir), openTest(t, dir), openTest(t, dir), openTest(t, dir)
	held, _ := granted(t, holder, "name", time.Hour)
	granted(t, holder, "other", time.Hour)
	leaves := waitRequest("name")
	acquireQueued(t, first, leaves)
	acquireQueued(t, first, waitRequest("other"))
	acquireQueued(t, second, waitRequest("name"))
	if a, b := slotOf(first, "name"), slotOf(second, "name"); a != 0 || b != 1 {
		t.Fatalf("the slots are %d and %d, want 0 and 1", a, b)
	}
	if _, err := first.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: leaves.Owner}); err != nil {
		t.Fatal(err)
	}
	released(t, holder, held)
	eventually(t, "the second moves on", func() bool { return slotOf(second, "name") == 0 })
	granted(t, holder, "name", time.Hour)
	acquireQueued(t, third, waitRequest("name"))
	if got := slotOf(third, "name"); got != 1 {
		t.Errorf("the slot of the third is %d, want 1", got)
	}
}

// The slots of killed processes are free, and a waiter without one gets one.
func TestSlotsOfTheDead(t *testing.T) {
	dir := t.TempDir()
	s, last := openTest(t, dir), openTest(t, dir)
	granted(t, s, "name", time.Hour)
	var children []*child
	for range watchedSlots {
		c := start(t, command("wait", dir, "name"))
		c.line()
		children = append(children, c)
	}
	acquireQueued(t, last, waitRequest("name"))
	if watches(last) {
		t.Fatalf("more than %d processes watch a name", watchedSlots)
	}
	for _, c := range children {
		c.kill()
	}
	eventually(t, "the waiter watches", func() bool { return watches(last) })
}

func init() { roles["wait"] = roleWait }

// roleWait waits for a name that is held, until its input ends.
func roleWait(args []string) error {
	s, err := New(args[0], nil)
	if err != nil {
		return err
	}
	res, err := s.Acquire(context.Background(), waitRequest(args[1]))
	if err != nil || !res.Queued {
		return fmt.Errorf("not queued: %w", err)
	}
	fmt.Println("waits")
	return awaitEOF()
}

// Those that do not watch know about how many wait, whatever their own slot is: they examine the
// name the less often the more they are.
func TestCrowdSize(t *testing.T) {
	const waiters = 100
	dir := t.TempDir()
	granted(t, openTest(t, dir), "name", time.Hour)
	var stores []*Store
	for range waiters {
		s := openTest(t, dir)
		acquireQueued(t, s, waitRequest("name"))
		stores = append(stores, s)
	}
	low, large := 0, 0
	for _, s := range stores {
		s.watcher.mu.Lock()
		n := s.watcher.names["name"]
		s.watcher.takeSlot(t.Context(), s, n)
		switch {
		case n.slot < watchedSlots:
		case n.waitersLog2 > 9:
			t.Errorf("one with slot %d takes %d waiters for %d", n.slot, waiters, 1<<n.waitersLog2)
		case n.slot < 2*watchedSlots:
			low++
			if 1<<n.waitersLog2 > 2*watchedSlots {
				large++
			}
		}
		s.watcher.mu.Unlock()
	}
	if low == 0 || 2*large < low {
		t.Errorf("%d of %d with a low slot find that there are more than %d waiters", large, low, 2*watchedSlots)
	}
}

// The pauses of those that do not watch grow with the age of the hold, and with how many wait.
func TestExaminationPause(t *testing.T) {
	s := openTest(t, t.TempDir())
	for _, c := range []struct {
		slot, crowd int
		age, want   time.Duration
	}{
		{0, 0, 0, 2 * time.Millisecond},
		{noSlot, 0, 100 * time.Millisecond, 100 * time.Millisecond},
		{watchedSlots - 1, 0, time.Hour, 250 * time.Millisecond},
		{watchedSlots, 5, time.Hour, 2 * watchedSlots * slotPause},
		{1000, 10, 3 * time.Millisecond, 1024 * 3 * time.Millisecond},
		{1000, 10, time.Hour, 1024 * slotPause},
		{watchedSlots, 10, time.Hour, 1024 * slotPause},
	} {
		n := &watchedName{slot: c.slot, waitersLog2: c.crowd, rec: record{State: stateHeld, Since: timeOfDay(time.Now().Add(-c.age))}}
		if got := n.examinationPause(s); got < c.want || got > 2*c.want {
			t.Errorf("slot %d, held for %v: %v, want %v", c.slot, c.age, got, c.want)
		}
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
	s, err := New(args[0], nil)
	if err != nil {
		return err
	}
	defer s.Close()
	asks := make(chan struct{}, 1)
	defer s.Notify(func(driver.Notice) {
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
			_, err = s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		}
		if i == 0 {
			fmt.Println("waits")
		}
		<-asks
	}
}
