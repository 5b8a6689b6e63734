package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

// CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC by the time of all suspends.
func init() {
	const clockMonotonic, clockBoottime = 1, 7
	suspendedTime = func() time.Duration {
		boot := readClock(clockBoottime)
		return boot - readClock(clockMonotonic) // after boot, so that a pause in between looks like no suspend
	}
}

// readClock returns the time of a clock of the kernel. Without one it is 0, and no time passes in
// suspends.
func readClock(id uintptr) time.Duration {
	var now syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}
