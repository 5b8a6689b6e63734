package filestore

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A kernelTimer wakes the one goroutine that waits for it. A process that does nothing but wait for
// a name is woken by it at a third to a seventh of the cost of a timer of the runtime: that ends a
// wait of epoll, which the kernel may prolong by a thousandth, and the runtime polls meanwhile.
type kernelTimer struct {
	fd   int
	file *os.File  // the same; parks the goroutine in the runtime's poller
	at   time.Time // when it fires; zero if it is not set
}

func newKernelTimer() (*kernelTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &kernelTimer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// setBefore makes the timer fire at a moment, unless it fires earlier. It must not be called after
// the file was closed.
func (t *kernelTimer) setBefore(at time.Time) {
	if !t.at.IsZero() && !at.Before(t.at) {
		return
	}
	t.at = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(time.Until(at).Nanoseconds(), 1))}
	_ = unix.TimerfdSettime(t.fd, 0, &spec, nil) // It cannot fail.
}

// wait waits until the timer has fired. It returns an error when the file is closed.
func (t *kernelTimer) wait() error {
	_, err := t.file.Read(make([]byte, 8))
	return err
}
