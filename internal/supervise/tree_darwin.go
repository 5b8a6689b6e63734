package supervise

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: macOS gives orphans to launchd and to no other process.
func becomeReaper() error { return nil }

// killWithParent does nothing: macOS has no parent-death signal. Instead, the parent sees that
// the supervisor has ended.
func killWithParent(*syscall.SysProcAttr) {}

// continueWithParent does nothing: macOS has no parent-death signal.
func continueWithParent(*syscall.SysProcAttr) {}

// newWakeFD returns a descriptor that does nothing: macOS cannot continue a process when
// another one ends.
func newWakeFD() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/null: %w", err)
	}
	return fd, nil
}

// survivors lists the processes that are left of the tree.
func (t *processTree) survivors() []int { return t.members() }

// hasOrphans reports whether processes of the tree are left although this process has no child
// any more: descendants that stayed in the group of orphanRoot, and those that can be traced to
// it. A descendant that has left both cannot be found.
func (t *processTree) hasOrphans() bool {
	stray := t.orphanRoot()
	if stray == 0 {
		return false
	}
	return processExists(stray) || processExists(-stray) || len(t.members()) > 0
}

func processExists(pid int) bool { return unix.Kill(pid, 0) != unix.ESRCH }

// killChildren sends SIGKILL once to every process of the tree that it finds.
func (t *processTree) killChildren() {
	t.signalAll(unix.SIGKILL)
}

// signalAll sends signals to every process of the tree that it finds.
func (t *processTree) signalAll(signals ...unix.Signal) {
	targets := t.members()
	if stray := t.orphanRoot(); stray != 0 {
		targets = append(targets, -stray, stray)
	}
	for _, sig := range signals {
		for _, pid := range targets {
			_ = unix.Kill(pid, sig)
		}
	}
}

// members lists the processes that descend from this process or from orphanRoot.
func (t *processTree) members() []int {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	parents := make(map[int]int, len(all))
	for _, p := range all {
		parents[int(p.Proc.P_pid)] = int(p.Eproc.Ppid)
	}
	var pids []int
	for pid := range parents {
		if descends(pid, os.Getpid(), parents) || descends(pid, t.orphanRoot(), parents) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf returns the parent of a process, 0 if the process has ended.
func parentOf(pid int) int {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return int(info.Eproc.Ppid)
}
