package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

func init() {
	if readBootClock() > 0 {
		bootClock = readBootClock
	}
}

// readBootClock returns the time since the machine was booted, or 0 if the kernel does not tell.
func readBootClock() time.Duration {
	const clockBoottime = 7
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(now.Nano())
}
