package holdfast

import "time"

// SetBootClock replaces the boot clock until the returned function is called; nil stands for a system
// that has none. A suspend is as long as it gets ahead of the monotonic clock.
func SetBootClock(read func() time.Duration) (restore func()) {
	old := suspendedTime
	suspendedTime = nil
	if read != nil {
		began, offset := time.Now(), read()
		suspendedTime = func() time.Duration { return read() - offset - time.Since(began) }
	}
	return func() { suspendedTime = old }
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
