//go:build unix

// Package hostclock reads the monotonic clock of the host, which all its
// processes share, so that times that different processes note can be compared.
package hostclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since some moment that is the same for all processes.
func Now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail with this clock
	return time.Duration(t.Nano())
}
