package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes orphans of our descendants our own children, wherever they
// have moved themselves by setsid or a double fork.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return nil
}

// dieWithParent has the process killed when we end.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// lingers is false: all descendants are our children in the end.
func (t *tree) lingers() bool { return false }

// strike kills our own children. Their children become ours by that, and are
// killed the next time: so whoever forks, ends, and comes back to us under an
// ever new number is caught by one who is quick.
func (t *tree) strike() {
	children, ok := ownChildren()
	if !ok {
		t.signalAll(unix.SIGKILL)
	}
	for _, pid := range children {
		signalChild(pid, os.Getpid(), unix.SIGKILL)
	}
}

// signalAll sends signals to every process of the tree that it sees.
func (t *tree) signalAll(signals ...unix.Signal) {
	parents := parentsOfAll()
	for pid, parent := range parents {
		if descends(pid, os.Getpid(), parents) {
			signalChild(pid, parent, signals...)
		}
	}
}

// signalChild sends signals to pid if it is still a child of parent, or ours by
// now. The process may have ended and its number may be another's: therefore the
// process is pinned before it is looked at.
func signalChild(pid, parent int, signals ...unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	pinned := err == nil
	if pinned {
		defer unix.Close(fd)
	}
	if now := parentOf(pid); now == 0 || now != parent && now != os.Getpid() {
		return
	}
	for _, sig := range signals {
		if !pinned || errors.Is(unix.PidfdSendSignal(fd, sig, nil, 0), unix.ENOSYS) {
			_ = unix.Kill(pid, sig)
		}
	}
}

// ownChildren lists our children, if the kernel was built with that list.
func ownChildren() (pids []int, ok bool) {
	for _, tid := range list("/proc/self/task") {
		data, err := content("/proc/self/task/" + tid + "/children")
		ok = ok || err == nil
		for field := range bytes.FieldsSeq(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, ok
}

// parentsOfAll returns the parent of every process of the machine that we may
// see.
func parentsOfAll() map[int]int {
	parents := make(map[int]int)
	for _, name := range list("/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent := parentOf(pid); parent != 0 {
				parents[pid] = parent
			}
		}
	}
	return parents
}

// parentOf returns the parent of a process, 0 if the process is gone.
func parentOf(pid int) int {
	stat, err := content("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name of the program comes first, in brackets, and may itself hold
	// brackets and spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

func list(folder string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// content returns the beginning of a file of the kernel.
func content(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return buf[:max(n, 0)], err
}
