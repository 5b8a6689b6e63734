package holdfast

import "time"

// suspendedTime returns for how long this machine has been suspended since it was booted. Other
// systems than Linux do not tell, and it is nil: after a suspend a lock may look younger than it is
// there. The store and the fencing token are not misled.
var suspendedTime func() time.Duration

// A clock measures the time since its client was made, at a rate that steps of the wall clock do
// not change. It includes suspends with useBootClock. Its readings are durations since its base,
// and a deadline is such a reading. They are greater than zero; zero means never.
type clock struct {
	base          time.Time
	suspendedBase time.Duration // suspendedTime at base
	useBootClock  bool          // suspends count: other processes measure time, too
}

// now returns the reading of this moment. A suspend takes longer than a millisecond. What is
// shorter comes from the reading of two clocks one after the other.
func (c *clock) now() time.Duration {
	if c.useBootClock {
		if suspended := suspendedTime() - c.suspendedBase; suspended > time.Millisecond {
			return time.Since(c.base) + suspended
		}
	}
	return time.Since(c.base)
}

// time turns a reading into a time.Time that carries a monotonic reading. It counts from now, since
// the monotonic clock may have stood still since the base.
func (c *clock) time(reading time.Duration) time.Time {
	return time.Now().Add(reading - c.now())
}
