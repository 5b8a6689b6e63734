package supervise

import (
	"math"
	"time"
)

// An instant is a moment in nanoseconds on a clock that all processes of the machine share,
// that cannot be set, and that goes on while the machine is suspended. Go's own monotonic clock
// stands still then.
type instant int64

// never is later than every other instant.
const never instant = math.MaxInt64

// instantOf converts a moment of Go's clock. The result is right only if the machine has not
// been suspended since t was computed.
func instantOf(t time.Time) instant {
	return bootNow().add(time.Until(t))
}

// add returns the instant d later, and never if an instant cannot represent it.
func (i instant) add(d time.Duration) instant {
	if i == never || d > 0 && i > never-instant(d) {
		return never
	}
	return i + instant(d)
}
