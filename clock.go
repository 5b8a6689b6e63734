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

	// A suspend moves the wall clock by as much as the boot clock, at the same
	// time (timekeeping_inject_sleeptime64 of the kernel). As long as it keeps its
	// distance from the monotonic clock there was none since the boot clock was
	// read, and the system call that reads it can be saved: for a short hold that
	// would take longer than all else that is done here.
	apart atomic.Int64 // the wall clock less the time since base, when it was read
	ahead atomic.Int64 // how far the boot clock had run ahead then
}

// apartMax is by how much that distance may seem to change, since the two clocks
// are read one after the other. A suspend takes longer.
const apartMax = 100 * time.Microsecond

// wallClock is the wall clock of a moment, in nanoseconds since 1970.
var wallClock = time.Time.UnixNano

// start sets the base of the clock.
func (c *clock) start(hosts bool) {
	c.base, c.hosts = time.Now().Add(-1), hosts && bootClock != nil
	if c.hosts {
		c.boot = bootClock()
		c.look()
	}
}

func (c *clock) now() time.Duration {
	now := time.Now()
	elapsed := now.Sub(c.base)
	if !c.hosts {
		return elapsed
	}
	moved := time.Duration(wallClock(now) - int64(elapsed) - c.apart.Load())
	if moved > apartMax || moved < -apartMax {
		return c.look()
	}
	return elapsed + time.Duration(c.ahead.Load())
}

// look reads all clocks. What the wall clock is compared with later is read first:
// a suspend after that is noticed then.
func (c *clock) look() time.Duration {
	before := time.Now()
	apart := wallClock(before) - int64(before.Sub(c.base))
	boot := bootClock() - c.boot
	elapsed := time.Since(c.base) // after boot, so that a pause in between does not make it look ahead
	for {
		ahead := c.ahead.Load()
		if int64(boot-elapsed) <= ahead || c.ahead.CompareAndSwap(ahead, int64(boot-elapsed)) {
			break
		}
	}
	c.apart.Store(apart) // after ahead, which goes with it
	return elapsed + time.Duration(c.ahead.Load())
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
