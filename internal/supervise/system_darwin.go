package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// memoryFile returns a file that has been removed, so that only its descriptor is left.
func memoryFile() (int, error) {
	f, err := os.CreateTemp("", "holdfast-*")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return 0, err
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// setProcessName does nothing: on macOS a process is named after its program.
func setProcessName(string) {}

// setStopBlocked does nothing: it is for vfork, which Go does not use on macOS.
func setStopBlocked(bool) bool { return false }

const waitAll = 0 // on macOS all children end with SIGCHLD

// EndBy ends this process by a signal, as it would have ended without a handler, so that a shell or
// a service manager can tell that from an exit code. It returns if the signal is blocked.
func EndBy(sig syscall.Signal) {
	signal.Reset(sig)
	_ = unix.Kill(unix.Getpid(), sig)
	time.Sleep(100 * time.Millisecond) // another thread may get it
}

// programFile returns the program that is running.
func programFile() (string, error) { return os.Executable() }

// bootNow reads CLOCK_MONOTONIC_RAW, a clock of macOS that goes on during sleep.
func bootNow() instant {
	var ts unix.Timespec
	// ClockGettime cannot fail: every system that Go supports has this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts)
	return instant(ts.Nano())
}

// onParentDeath does nothing: macOS has no parent-death signal. Instead, the parent sees that the
// supervisor has ended.
func onParentDeath(*syscall.SysProcAttr, syscall.Signal) {}

// newWakeFD returns a descriptor that does nothing: macOS cannot continue a process when
// another one ends.
func newWakeFD() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/null: %w", err)
	}
	return fd, nil
}

// reapOne waits for the end of a child and reaps it. An error means that no process of the tree is
// left that it finds.
func (t *processTree) reapOne() (pid int, status unix.WaitStatus, err error) {
	for {
		pid, err = unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			for len(t.children()) > 0 { // orphans, which are no children of this process
				time.Sleep(10 * time.Millisecond)
			}
		}
		if !errors.Is(err, unix.EINTR) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.rootReaped = t.rootReaped || pid == t.rootPID
			return pid, status, err
		}
	}
}

// childLists is empty: macOS lists all processes in one step, and gives orphans to launchd alone.
type childLists struct{}

func (childLists) open() error { return nil }
func (childLists) close()      {}

// children lists the processes of the tree that it finds: those that descend from this process or
// from orphanRoot, and as a negative number the group of that. A descendant that has left both
// cannot be found.
func (t *processTree) children() (pids []int) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[int(p.Proc.P_pid)] = int(p.Eproc.Ppid)
	}
	root := t.orphanRoot()
	for pid := range parents {
		if descends(pid, os.Getpid(), parents) || root != 0 && (pid == root || descends(pid, root, parents)) {
			pids = append(pids, pid)
		}
	}
	if root != 0 && unix.Kill(-root, 0) != unix.ESRCH {
		pids = append(pids, -root)
	}
	return pids
}

// descends reports whether pid is a descendant of root.
func descends(pid, root int, parents map[int]int) bool {
	for range len(parents) { // it was not read in one atomic step, and might contain a cycle
		parent, ok := parents[pid]
		if !ok || parent == root {
			return ok
		}
		pid = parent
	}
	return false
}

// signalBelow does nothing: children returns all descendants.
func (t *processTree) signalBelow(int, func() bool, []unix.Signal) {}

// parentOf returns the parent of a process, -1 if the process has ended.
func parentOf(pid int) int {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return -1
	}
	return int(info.Eproc.Ppid)
}
