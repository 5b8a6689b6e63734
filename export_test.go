package holdfast

import "time"

// SetBootClock replaces the boot clock until the returned function is called; nil stands for a
// system that has none. A suspend is as long as it gets ahead of the monotonic clock.
func SetBootClock(read func() time.Duration) (restore func()) {
	old := suspendedTime
	suspendedTime = nil
	if read != nil {
		began, offset := time.Now(), read()
		suspendedTime = func() time.Duration { return read() - offset - time.Since(began) }
	}
	return func() { suspendedTime = old }
}
