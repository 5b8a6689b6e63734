package holdfast

import (
	"context"
	"testing"
	"time"
)

// SetBootClock replaces the boot clock until the returned function is called;
// nil stands for a system that has none. As in a real suspend, the wall clock moves
// with it when it gets ahead of the monotonic clock.
func SetBootClock(read func() time.Duration) (restore func()) {
	boot, wall := bootClock, wallClock
	bootClock = read
	if read != nil {
		began, offset := time.Now(), read()
		wallClock = func(t time.Time) int64 {
			return t.UnixNano() + int64(read()-offset-time.Since(began))
		}
	}
	return func() { bootClock, wallClock = boot, wall }
}

// SetWallClock replaces the wall clock until the returned function is called.
func SetWallClock(read func(time.Time) int64) (restore func()) {
	old := wallClock
	wallClock = read
	return func() { wallClock = old }
}

// NextCheck is when the scheduler of a client will run, 0 if it sleeps.
func NextCheck(c *Client) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schedule.nextCheck
}

// EndLease ends the lease of a lock for the time before the contexts of its handles end.
func EndLease(l *Lock, end error) {
	c := l.lease.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.lease.endReason.Store(&end)
	c.schedule.remove(l.lease)
}

// ReleaseInSteps ends the last handle of a lock as Release does, and returns the rest of Release.
func ReleaseInSteps(l *Lock) (releaseLease func() error) {
	c := l.lease.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.lease.openHandles--
	l.lease.endLocked(&ErrReleased)
	l.endContext(ErrReleased)
	return l.lease.release
}

// RegisterWork registers work with a Lock or a LockSet, as Do does once it has found it held.
func RegisterWork(h heldLock, done <-chan struct{}) error { return h.registerWork(done) }

// RequestAllocs returns how many allocations a request makes.
func RequestAllocs() float64 {
	c := &Client{}
	return testing.AllocsPerRun(100, func() {
		_, _ = request(c, context.Background(), "acquire", time.Second, func(ctx context.Context) (bool, error) {
			_, ok := ctx.Deadline()
			return ok, ctx.Err()
		})
	})
}

// QueueCount returns how many queues a Client has.
func QueueCount(c *Client) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.queues {
		for ; q != nil; q = q.next {
			n++
		}
	}
	return n
}
