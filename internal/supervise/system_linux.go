package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file that is only in memory.
func memoryFile() (int, error) { return unix.MemfdCreate("holdfast", unix.MFD_CLOEXEC) }

// setProcessName names this process in lists of processes, where it would otherwise be called "exe"
// after the link by which it was started. The name differs from that of the program, so that
// killing the program by name kills the process that the user started alone, and the others can
// clean up.
func setProcessName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// waitAll is an option of wait4 for children that end with another signal than SIGCHLD.
const waitAll = unix.WALL

// setStopBlocked blocks SIGTSTP, or no longer, on this thread and in the processes that it starts.
// It returns what was before. A process that Ctrl-Z stops before it has executed its program stops
// the thread that has started it, too, and no shell sees that.
func setStopBlocked(blocked bool) (before bool) {
	const stop = 1 << (unix.SIGTSTP - 1)
	var set, old unix.Sigset_t
	set.Val[0] = stop
	how := unix.SIG_UNBLOCK
	if blocked {
		how = unix.SIG_BLOCK
	}
	_ = unix.PthreadSigmask(how, &set, &old)
	return old.Val[0]&stop != 0
}

// EndBy ends this process by a signal, as it would have ended without a handler, so that a shell or
// a service manager can tell that from an exit code. It returns if the signal is blocked.
func EndBy(sig syscall.Signal) {
	signal.Reset(sig)
	var action [32]byte // of zeros: the default
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // the core that matters is that of the command
	runtime.LockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
}

// programFile returns the program that is running, even if its file has been replaced since it was
// started.
func programFile() (string, error) { return "/proc/self/exe", nil }

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
