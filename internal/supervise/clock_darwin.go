package supervise

import "golang.org/x/sys/unix"

// bootNow reads CLOCK_MONOTONIC_RAW, a clock of macOS that goes on during sleep.
func bootNow() instant {
	var ts unix.Timespec
	// ClockGettime cannot fail: every system that Go supports has this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts)
	return instant(ts.Nano())
}
