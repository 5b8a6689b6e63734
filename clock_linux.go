package holdfast

import (
	"syscall"
	"time"
	"unsafe"
)

// bootClock reads CLOCK_BOOTTIME, which goes on during a suspend.
var bootClock = func() time.Duration {
	const clockBoottime = 7
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0 // the monotonic clock then decides alone
	}
	return time.Duration(now.Nano())
}
