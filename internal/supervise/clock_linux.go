package supervise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func now() instant {
	var ts unix.Timespec
	// It cannot fail: every kernel that Go supports has this clock.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return instant(ts.Nano())
}

// An alarm says on c that an instant has come. It may ring without cause. It
// is a timer of the kernel, because one of Go's would be late by as long as the
// machine was suspended.
type alarm struct {
	c  <-chan time.Time
	fd int
	f  *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	c := make(chan time.Time, 1)
	a := &alarm{c: c, fd: fd, f: os.NewFile(uintptr(fd), "alarm")}
	go a.ring(c)
	return a, nil
}

func (a *alarm) ring(c chan<- time.Time) {
	expirations := make([]byte, 8)
	for {
		if _, err := a.f.Read(expirations); err != nil {
			return
		}
		select {
		case c <- time.Now():
		default:
		}
	}
}

// set replaces the instant at which the alarm rings; one in the past rings at
// once, never not at all.
func (a *alarm) set(at instant) {
	var spec unix.ItimerSpec
	if at != never {
		// Zero would disarm the timer.
		spec.Value = unix.NsecToTimespec(max(int64(at), 1))
	}
	// It cannot fail with arguments such as these.
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

func (a *alarm) close() { _ = a.f.Close() }
