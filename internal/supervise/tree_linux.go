package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes this process the parent of every orphan among its descendants, even after
// setsid or a double fork.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return nil
}

// killWithParent makes the kernel send SIGKILL to the process when its parent, this process,
// ends.
func killWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// continueWithParent makes the kernel continue the process, if it is stopped, when its parent,
// this process, ends.
func continueWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGCONT }

// newWakeFD returns a descriptor for a child to inherit. When the child has ended, the kernel
// continues this process, if it is stopped then.
func newWakeFD() (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, fmt.Errorf("create a pipe: %w", err)
	}
	r := uintptr(ends[0])
	// Where the kernel does not support this, the process stays stopped, as on other systems.
	_, _ = unix.FcntlInt(r, unix.F_SETOWN, os.Getpid())
	_, _ = unix.FcntlInt(r, unix.F_SETSIG, int(unix.SIGCONT))
	_, _ = unix.FcntlInt(r, unix.F_SETFL, unix.O_ASYNC)
	return ends[1], nil
}

// hasOrphans returns false: every descendant becomes a child of this process in the end.
func (t *processTree) hasOrphans() bool { return false }

// killChildren sends SIGKILL to the children of this process. Their children become children of
// this process by that, and are killed the next time. Calling it often enough therefore catches
// a process that keeps forking, ending, and coming back under a new process id.
func (t *processTree) killChildren() {
	children, ok := ownChildren()
	if !ok {
		t.signalAll(unix.SIGKILL)
	}
	for _, pid := range children {
		signalChild(pid, os.Getpid(), unix.SIGKILL)
	}
}

// survivors lists the children of this process that have not ended.
func (t *processTree) survivors() []int {
	children, _ := ownChildren()
	return slices.DeleteFunc(children, func(pid int) bool { return !isOwnChild(pid) })
}

// signalAll sends signals to every process of the tree that it finds.
func (t *processTree) signalAll(signals ...unix.Signal) {
	parents := parentsOfAll()
	// A child that hides in /proc is still in the kernel's list of children.
	children, _ := ownChildren()
	for _, pid := range children {
		parents[pid] = os.Getpid()
	}
	for pid, parent := range parents {
		if descends(pid, os.Getpid(), parents) {
			signalChild(pid, parent, signals...)
		}
	}
}

// signalChild sends signals to pid if it is still a child of parent, or by now of this process.
// The process may have ended and its id may belong to another one: therefore signalChild pins
// the process with a pidfd before it checks the parent.
func signalChild(pid, parent int, signals ...unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	pinned := err == nil
	if pinned {
		defer unix.Close(fd)
	}
	if now := parentOf(pid); now != parent && now != os.Getpid() && !isOwnChild(pid) {
		return
	}
	for _, sig := range signals {
		if !pinned || errors.Is(unix.PidfdSendSignal(fd, sig, nil, 0), unix.ENOSYS) {
			_ = unix.Kill(pid, sig)
		}
	}
}

// isOwnChild reports whether pid is a child of this process that has not ended. It does not
// read /proc, where a process can hide: one that is not dumpable is invisible to other
// processes of its user if /proc is mounted with hidepid.
func isOwnChild(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == 0
}

// ownChildren lists the children of this process. ok is false if the kernel was built without
// that list.
func ownChildren() (pids []int, ok bool) {
	for _, tid := range readDirNames("/proc/self/task") {
		data, err := readProcFile("/proc/self/task/" + tid + "/children")
		ok = ok || err == nil
		for field := range bytes.FieldsSeq(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, ok
}

// parentsOfAll returns the parent of every process of the machine that is visible to this one.
func parentsOfAll() map[int]int {
	parents := make(map[int]int)
	for _, name := range readDirNames("/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			if parent := parentOf(pid); parent != 0 {
				parents[pid] = parent
			}
		}
	}
	return parents
}

// parentOf returns the parent of a process, 0 if the process has ended.
func parentOf(pid int) int {
	stat, err := readProcFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name of the program comes first, in parentheses, and may itself contain parentheses
	// and spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

func readDirNames(folder string) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// readProcFile returns the first 4 KiB of a file in /proc.
func readProcFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return buf[:max(n, 0)], err
}
