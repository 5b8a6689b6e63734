package holdfast

import "time"

// A clock measures the time since its client was made. Steps of the wall clock do not change its
// rate. It counts the time of a suspend, where the system tells: on Linux the monotonic clock stands
// still during a suspend.
//
// Its readings are durations since its base, and a deadline is such a reading. They are greater
// than zero; zero means never.
type clock struct {
	base          time.Time
	suspendedBase time.Duration // suspendedTime at base
	useBootClock  bool          // suspends count: other processes measure time, too
}

// setBase sets the base of the clock.
func (c *clock) setBase(useBootClock bool) {
	c.base, c.useBootClock = time.Now().Add(-1), useBootClock && suspendedTime != nil
	if c.useBootClock {
		c.suspendedBase = suspendedTime()
	}
}

// now returns the reading of this moment. A suspend takes longer than a millisecond; what is shorter
// comes from the reading of two clocks one after the other.
func (c *clock) now() time.Duration {
	if c.useBootClock {
		if suspended := suspendedTime() - c.suspendedBase; suspended > time.Millisecond {
			return time.Since(c.base) + suspended
		}
	}
	return time.Since(c.base)
}

// time turns a reading into a time.Time that carries a monotonic reading. It counts from now,
// since the monotonic clock may have stood still since the base.
func (c *clock) time(reading time.Duration) time.Time {
	return time.Now().Add(reading - c.now())
}
