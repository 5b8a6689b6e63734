package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

// suspendedTime returns for how long this machine has been suspended since it was booted: by that
// CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC.
var suspendedTime = func() time.Duration {
	const clockMonotonic, clockBoottime = 1, 7
	boot := readClock(clockBoottime)
	return boot - readClock(clockMonotonic) // after boot, so that a pause in between looks like no suspend
}

// readClock returns the time of a clock of the kernel.
func readClock(id uintptr) time.Duration {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0 // the monotonic clock then decides alone
	}
	return time.Duration(now.Nano())
}
