package holdfast

import "time"

// A clock measures the time since its client was made, in a way that neither
// steps of the wall clock nor, where the system can tell, the suspension of the
// machine can mislead: of the monotonic clock, which stands still during a
// suspend on Linux, and the boot clock, which does not, it takes the one that
// has run further.
//
// Its readings are durations since its base, and a deadline is such a reading.
// They are greater than zero, which stands for never.
type clock struct {
	base  time.Time
	boot  time.Duration // reading of the boot clock at base
	hosts bool          // the boot clock is needed: others count time, too
}

func newClock(hosts bool) clock {
	c := clock{base: time.Now().Add(-1), hosts: hosts && bootClock != nil}
	if c.hosts {
		c.boot = bootClock()
	}
	return c
}

func (c *clock) now() time.Duration {
	elapsed := time.Since(c.base)
	if c.hosts {
		elapsed = max(elapsed, bootClock()-c.boot)
	}
	return elapsed
}

// time turns a reading into a time.Time that carries a monotonic reading. It is
// reckoned from now, since the monotonic clock may have stood still since the
// base.
func (c *clock) time(reading time.Duration) time.Time {
	return time.Now().Add(reading - c.now())
}

// validity is for how long after sending a request its sender may rely on a
// TTL: drift of the clocks against each other (1% and 2 ms, as for Redlock) is
// taken off, so that the holder's belief ends before the store's.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
