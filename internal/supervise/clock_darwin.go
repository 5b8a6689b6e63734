package supervise

import "golang.org/x/sys/unix"

// now reads the one clock of macOS that goes on during sleep.
func now() instant {
	var ts unix.Timespec
	// It cannot fail: every system that Go supports has this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return instant(ts.Nano())
}
