package filestore

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

func thisHost() (host, error) {
	id, err := os.ReadFile(bootIDFile)
	if err != nil {
		return host{}, fmt.Errorf("cannot tell one boot of this host from the next (is /proc mounted?): %w", err)
	}
	if _, errno := bootTime(); errno != 0 {
		return host{}, fmt.Errorf("this kernel has no clock that goes on during suspension: %w", errno)
	}
	return host{boot: strings.TrimSpace(string(id)), uptime: uptime, wall: time.Now, flush: (*os.File).Sync}, nil
}

// uptime ignores the error of the clock: the clock was present when thisHost read it.
func uptime() time.Duration {
	now, _ := bootTime()
	return now
}

// bootTime reads CLOCK_BOOTTIME. The clock behind time.Now and time.Since stops while the host is
// suspended, and differs from process to process.
func bootTime() (time.Duration, syscall.Errno) {
	const clockBoottime = 7
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno
}
