package holdfast

import (
	"sync/atomic"
	"time"
)

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
	ahead atomic.Int64  // how far the boot clock was last seen to have run ahead
}

// start sets the base of the clock.
func (c *clock) start(hosts bool) {
	c.base, c.hosts = time.Now().Add(-1), hosts && bootClock != nil
	if c.hosts {
		c.boot = bootClock()
	}
}

func (c *clock) now() time.Duration {
	if !c.hosts {
		return time.Since(c.base)
	}
	boot := bootClock() - c.boot // first, so that a pause in between does not make it look ahead
	elapsed := time.Since(c.base)
	if ahead := boot - elapsed; ahead > time.Duration(c.ahead.Load())+time.Millisecond {
		c.ahead.Store(int64(ahead))
	}
	return max(elapsed, boot)
}

// past is a moment that is not later than now: now itself, unless the machine was
// suspended since now was last asked for. It serves for the moment before which
// something began, and saves a system call.
func (c *clock) past() time.Duration {
	return time.Since(c.base) + time.Duration(c.ahead.Load())
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
