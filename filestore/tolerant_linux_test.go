package filestore

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// limitedWaiter makes an owner of s wait, and returns its request.
func limitedWaiter(t *testing.T, s *Store, limit int) driver.AcquireRequest {
	t.Helper()
	req := limited("name", limit)
	req.Queue = time.Hour
	acquireQueued(t, s, req)
	return req
}

// A waiter is notified of the release of one of several holds, and of the death of one of several
// processes.
func TestWatchOfOneOfSeveral(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := openTest(t, dir), openTest(t, dir)
	stays, goes := limited("name", 3), limited("name", 3)
	acquireAs(t, holder, stays, true)
	acquireAs(t, holder, goes, true)
	c := start(t, command("hold-limited", dir, "name", "3"))
	c.number()
	asks := asksFor(t, waiter, "name")
	first := limitedWaiter(t, waiter, 3)
	released(t, holder, goes)
	signaled(t, asks)
	acquireAs(t, waiter, first, true)
	second := limitedWaiter(t, waiter, 3)
	drainSignals(asks)
	c.kill()
	signaled(t, asks)
	acquireAs(t, waiter, second, true)
}

// A writer behind many readers is notified when the last of them dies, however many are watched.
func TestWatchOfManyReaders(t *testing.T) {
	dir := t.TempDir()
	waiter := openTest(t, dir)
	var stores []*Store
	for range watchedHolders + 8 {
		s, err := New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		acquireAs(t, s, limited("name", driver.Shared), true)
		stores = append(stores, s)
	}
	asks := asksFor(t, waiter, "name")
	writer := limitedWaiter(t, waiter, 0)
	for _, s := range stores {
		if err := s.Session().Close(); err != nil { // as the kernel does for a dead process
			t.Fatal(err)
		}
	}
	signaled(t, asks)
	acquireAs(t, waiter, writer, true)
}

// Of many that wait for a few slots, a release has as many notified as it serves, and the next,
// which then keeps others out.
func TestFewOfACrowdAreNotified(t *testing.T) {
	dir := t.TempDir()
	holder, waiter := openTest(t, dir), openTest(t, dir)
	var held, waiting []driver.AcquireRequest
	for range 2 {
		held = append(held, limited("name", 2))
		acquireAs(t, holder, held[len(held)-1], true)
	}
	for range 50 {
		waiting = append(waiting, limitedWaiter(t, waiter, 2))
	}
	var mu sync.Mutex
	asked := map[string]int{}
	t.Cleanup(waiter.Notify(func(n driver.Notice) {
		mu.Lock()
		defer mu.Unlock()
		asked[n.Owner]++
	}))
	released(t, holder, held[0])
	eventually(t, "the first waiter is notified", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[waiting[0].Owner] > 0
	})
	acquireAs(t, waiter, waiting[0], true)
	eventually(t, "the second waiter is notified", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[waiting[1].Owner] > 0
	})
	mu.Lock()
	defer mu.Unlock()
	if len(asked) > 3 || asked[""] > 0 {
		t.Errorf("the notices are %v, want some for two or three owners", asked)
	}
}

// When a waiter that keeps others out gives up, the next is notified.
func TestWatchOfAWaiterThatGivesUp(t *testing.T) {
	dir := t.TempDir()
	holder, first, second := openTest(t, dir), openTest(t, dir), openTest(t, dir)
	acquireAs(t, holder, limited("name", driver.Shared), true)
	asks := asksFor(t, second, "name")
	writer := limitedWaiter(t, first, 0)
	reader := limitedWaiter(t, second, driver.Shared)
	if ours, err := first.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: writer.Owner}); ours || err != nil {
		t.Fatal(ours, err)
	}
	signaled(t, asks)
	acquireAs(t, second, reader, true)
}
