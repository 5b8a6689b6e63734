//go:build unix

package measure

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what this process has used.
type Usage struct {
	Allocs, Bytes float64
	CPU           float64 // in seconds
}

// ReadUsage reads the usage of this process since its start. It stops the world for a moment.
func ReadUsage() Usage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u := Usage{Allocs: float64(memory.Mallocs), Bytes: float64(memory.TotalAlloc)}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		u.CPU = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	}
	return u
}

// Sub returns the usage between other and u.
func (u Usage) Sub(other Usage) Usage {
	return Usage{u.Allocs - other.Allocs, u.Bytes - other.Bytes, u.CPU - other.CPU}
}

// HeapInUse returns the size of the memory in use, in bytes, with the stacks of goroutines and
// without garbage.
func HeapInUse() float64 {
	for range 3 { // A sync.Pool keeps values for two collections.
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapAlloc + memory.StackInuse)
}

// LoadAverage returns the load average of the machine over one minute, and -1 if the system
// does not report it.
func LoadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	first, _, _ := strings.Cut(string(text), " ")
	average, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return -1
	}
	return average
}
