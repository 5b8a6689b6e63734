package filestore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// limitedWaiter makes an owner of s wait, and returns its request.
func limitedWaiter(t *testing.T, s *engine, limit int) olddriver.AcquireRequest {
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

// When a waiter that keeps others out gives up, the next is notified.
func TestWatchOfAWaiterThatGivesUp(t *testing.T) {
	dir := t.TempDir()
	holder, first, second := openTest(t, dir), openTest(t, dir), openTest(t, dir)
	acquireAs(t, holder, limited("name", olddriver.Shared), true)
	asks := asksFor(t, second, "name")
	writer := limitedWaiter(t, first, 0)
	reader := limitedWaiter(t, second, olddriver.Shared)
	if ours, err := first.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: writer.Owner}); ours || err != nil {
		t.Fatal(ours, err)
	}
	signaled(t, asks)
	acquireAs(t, second, reader, true)
}
