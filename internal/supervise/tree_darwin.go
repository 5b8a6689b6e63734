package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper does nothing: macOS gives orphans to launchd and to nobody else.
func becomeReaper() error { return nil }

// dieWithParent does nothing: macOS has no such signal. The front sees instead
// that the keeper has ended.
func dieWithParent(*syscall.SysProcAttr) {}

// lingers reports whether something is left of the tree though we have no child
// any more: descendants that stayed in the group of the stray process, and those
// that can be traced to it. What has left both is out of sight.
func (t *tree) lingers() bool {
	stray := t.stray()
	if stray == 0 {
		return false
	}
	return alive(stray) || alive(-stray) || len(t.members()) > 0
}

func alive(pid int) bool { return unix.Kill(pid, 0) != unix.ESRCH }

// strike kills whatever it sees of the tree, once.
func (t *tree) strike() {
	t.signalAll(unix.SIGKILL)
}

// signalAll sends signals to every process of the tree that it sees.
func (t *tree) signalAll(signals ...unix.Signal) {
	targets := t.members()
	if stray := t.stray(); stray != 0 {
		targets = append(targets, -stray, stray)
	}
	for _, sig := range signals {
		for _, pid := range targets {
			_ = unix.Kill(pid, sig)
		}
	}
}

// members lists the processes that descend from us or from the stray process.
func (t *tree) members() []int {
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
		if descends(pid, os.Getpid(), parents) || descends(pid, t.stray(), parents) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf returns the parent of a process, 0 if the process is gone.
func parentOf(pid int) int {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return int(info.Eproc.Ppid)
}
