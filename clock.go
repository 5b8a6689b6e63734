package holdfast

import (
	"sync/atomic"
	"time"
)

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

	// A suspend moves the wall clock by as much as the boot clock, at the same time
	// (timekeeping_inject_sleeptime64 of the kernel). As long as the wall clock keeps its
	// distance from the monotonic clock, there was no suspend since the boot clock was read, and
	// now does without the system call that reads it. For a short hold that call would take
	// longer than everything else in this package.
	wallOffset atomic.Int64 // the wall clock less the time since base, when it was read
	bootLead   atomic.Int64 // how far the boot clock was ahead when it was read
}

// wallOffsetTolerance is by how much wallOffset may seem to change, since the two clocks are read
// one after the other. A suspend takes longer.
const wallOffsetTolerance = 100 * time.Microsecond

// wallClock returns the wall clock of a moment, in nanoseconds since 1970.
var wallClock = time.Time.UnixNano

// setBase sets the base of the clock.
func (c *clock) setBase(useBootClock bool) {
	c.base, c.useBootClock = time.Now().Add(-1), useBootClock && bootClock != nil
	if c.useBootClock {
		c.bootBase = bootClock()
		c.resync()
	}
}

// now returns the reading of this moment.
func (c *clock) now() time.Duration {
	now := time.Now()
	elapsed := now.Sub(c.base)
	if !c.useBootClock {
		return elapsed
	}
	moved := time.Duration(wallClock(now) - int64(elapsed) - c.wallOffset.Load())
	if moved > wallOffsetTolerance || moved < -wallOffsetTolerance {
		return c.resync()
	}
	return elapsed + time.Duration(c.bootLead.Load())
}

// resync reads all clocks. It reads the wall clock, with which now compares later, first: now
// notices a suspend that comes after that.
func (c *clock) resync() time.Duration {
	before := time.Now()
	wallOffset := wallClock(before) - int64(before.Sub(c.base))
	boot := bootClock() - c.bootBase
	elapsed := time.Since(c.base) // after boot, so that a pause in between does not make the boot clock seem ahead
	for {
		lead := c.bootLead.Load()
		if int64(boot-elapsed) <= lead || c.bootLead.CompareAndSwap(lead, int64(boot-elapsed)) {
			break
		}
	}
	c.wallOffset.Store(wallOffset) // after bootLead, which belongs to it
	return elapsed + time.Duration(c.bootLead.Load())
}

// time turns a reading into a time.Time that carries a monotonic reading. It counts from now,
// since the monotonic clock may have stood still since the base.
func (c *clock) time(reading time.Duration) time.Time {
	return time.Now().Add(reading - c.now())
}
