package holdfast

import "time"

// A clock measures the time since its client was made. Steps of the wall clock do not change its
// rate. It counts the time of a suspend, where the system has a clock that does: on Linux the
// monotonic clock stands still during a suspend and the boot clock does not, so the clock uses
// the one that has run further.
//
// Its readings are durations since its base, and a deadline is such a reading. They are greater
// than zero; zero means never.
type clock struct {
	base         time.Time
	bootBase     time.Duration // reading of the boot clock at base
	useBootClock bool          // the boot clock is needed: other processes measure time, too
}

// setBase sets the base of the clock.
func (c *clock) setBase(useBootClock bool) {
	c.base, c.useBootClock = time.Now().Add(-1), useBootClock && bootClock != nil
	if c.useBootClock {
		c.bootBase = bootClock()
	}
}

// now returns the reading of this moment.
func (c *clock) now() time.Duration {
	elapsed := time.Since(c.base)
	if c.useBootClock {
		elapsed = max(elapsed, bootClock()-c.bootBase)
	}
	return elapsed
}

// time turns a reading into a time.Time that carries a monotonic reading. It counts from now,
// since the monotonic clock may have stood still since the base.
func (c *clock) time(reading time.Duration) time.Time {
	return time.Now().Add(reading - c.now())
}
