//go:build unix

// Package hostclock reads the monotonic clock of the host. All processes of the host
// share the clock, so that the times that they record can be compared.
package hostclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since a moment that is the same for all processes.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail with this clock
	return time.Duration(t.Nano())
}
