package supervise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func bootNow() instant {
	var ts unix.Timespec
	// ClockGettime cannot fail: every kernel that Go supports has this clock.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return instant(ts.Nano())
}

// A bootTimer sends on c when an instant has come. It may send without cause. It is a timer of
// the kernel, because a Go timer would be late by as long as the machine was suspended.
type bootTimer struct {
	c    <-chan time.Time
	fd   int
	file *os.File
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	c := make(chan time.Time, 1)
	t := &bootTimer{c: c, fd: fd, file: os.NewFile(uintptr(fd), "alarm")}
	go t.forwardExpirations(c)
	return t, nil
}

func (t *bootTimer) forwardExpirations(c chan<- time.Time) {
	expirations := make([]byte, 8)
	for {
		if _, err := t.file.Read(expirations); err != nil {
			return
		}
		select {
		case c <- time.Now():
		default:
		}
	}
}

// schedule replaces the instant at which the timer fires. An instant in the past fires at once,
// never does not fire.
func (t *bootTimer) schedule(at instant) {
	var spec unix.ItimerSpec
	if at != never {
		// Zero would disarm the timer.
		spec.Value = unix.NsecToTimespec(max(int64(at), 1))
	}
	// TimerfdSettime cannot fail with these arguments.
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

func (t *bootTimer) close() { _ = t.file.Close() }
