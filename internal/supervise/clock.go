package supervise

import (
	"math"
	"time"
)

// An instant is a moment in nanoseconds on a clock that every process of the
// machine shares, that nobody can set, and that goes on while the machine is
// suspended. Go's own monotonic clock stands still then.
type instant int64

// never is later than everything.
const never instant = math.MaxInt64

// instantOf translates a moment of Go's clock. It must be called while the
// machine has not been suspended since t was reckoned.
func instantOf(t time.Time) instant {
	return now().add(time.Until(t))
}

// add returns the instant d later, and never if there is no such one.
func (i instant) add(d time.Duration) instant {
	if i == never || d > 0 && i > never-instant(d) {
		return never
	}
	return i + instant(d)
}
