//go:build unix

package stage

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// SelfUse is what this process has used.
type SelfUse struct {
	Allocs, Bytes float64
	CPU           float64 // seconds
}

// ReadSelf reads the figures of this process. It stops the world for a moment.
func ReadSelf() SelfUse {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u := SelfUse{Allocs: float64(memory.Mallocs), Bytes: float64(memory.TotalAlloc)}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		u.CPU = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	}
	return u
}

// Sub returns what was used between other and u.
func (u SelfUse) Sub(other SelfUse) SelfUse {
	return SelfUse{Allocs: u.Allocs - other.Allocs, Bytes: u.Bytes - other.Bytes, CPU: u.CPU - other.CPU}
}

// Now is a monotonic clock that all processes of this host share.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // There is no unix without this clock.
	}
	return time.Duration(ts.Nano())
}
