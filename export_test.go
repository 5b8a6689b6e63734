package holdfast

import "time"

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

// NextLook is when the schedule of a client will be looked at, 0 if it sleeps.
func NextLook(c *Client) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schedule.next
}
