//go:build unix

package measure

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what this process has used.
type Usage struct {
	Allocs, Bytes  float64
	CPU            float64 // in seconds
	Writes         float64 // to connections of CountTraffic: a request, or several that go together
	Sent, Received float64 // bytes of these connections
}

// traffic counts what all connections of CountTraffic have carried.
var traffic struct{ writes, sent, received atomic.Int64 }

// CountTraffic returns a connection whose traffic is part of the Usage of this process. It counts TCP
// connections only.
func CountTraffic(conn net.Conn, err error) (net.Conn, error) {
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		return countedConn{tcp}, nil
	}
	return conn, err
}

// A countedConn has the other methods of its TCPConn: go-redis uses SyscallConn.
type countedConn struct{ *net.TCPConn }

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	traffic.received.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	traffic.writes.Add(1)
	traffic.sent.Add(int64(n))
	return n, err
}

// ReadUsage reads the usage of this process since its start. It stops the world for a moment.
func ReadUsage() Usage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u := Usage{
		Allocs: float64(memory.Mallocs), Bytes: float64(memory.TotalAlloc), Writes: float64(traffic.writes.Load()),
		Sent: float64(traffic.sent.Load()), Received: float64(traffic.received.Load()),
	}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		u.CPU = float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
	}
	return u
}

// Sub returns the usage between other and u.
func (u Usage) Sub(other Usage) Usage {
	return Usage{
		u.Allocs - other.Allocs, u.Bytes - other.Bytes, u.CPU - other.CPU,
		u.Writes - other.Writes, u.Sent - other.Sent, u.Received - other.Received,
	}
}

// TotalUsage returns the sum of what the workers have used. It makes requests of all at once.
func TotalUsage(workers []*Worker) (total Usage, err error) {
	all := make([]Usage, len(workers))
	errs := make([]error, len(workers))
	var group sync.WaitGroup
	for i, w := range workers {
		group.Go(func() { all[i], errs[i] = w.usage() })
	}
	group.Wait()
	for _, u := range all {
		total = total.Sub(Usage{}.Sub(u))
	}
	return total, errors.Join(errs...)
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
