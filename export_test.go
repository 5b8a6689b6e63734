package holdfast

import "time"

// SetBootClock replaces the boot clock until the returned function is called; nil stands for a
// system that has none.
func SetBootClock(read func() time.Duration) (restore func()) {
	old := bootClock
	bootClock = read
	return func() { bootClock = old }
}
