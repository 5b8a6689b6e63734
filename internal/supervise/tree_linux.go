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

// onParentDeath makes the kernel send a signal to the process when its parent, this process, ends.
func onParentDeath(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

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

// reapOne waits for the end of a child and reaps it. An error means that no process of the tree is
// left: every descendant becomes a child of this process in the end.
func (t *processTree) reapOne() (pid int, status unix.WaitStatus, err error) {
	for {
		err = unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			pid, err = unix.Wait4(-1, &status, unix.WNOHANG, nil)
			t.rootReaped = t.rootReaped || pid == t.rootPID
			return pid, status, err
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, 0, err
		}
	}
}

// childLists are the kernel's lists of the children of two threads: the one that starts them, and
// the first, which gets the orphans. Children that /proc hides (not dumpable, with hidepid) are in
// them, too. The files stay open meanwhile, since a command may use up all files of the machine.
type childLists struct {
	files []int
	data  []byte
}

// open also makes this process the parent of every orphan among its descendants, even after setsid
// or a double fork.
func (l *childLists) open() error {
	if err := checkProc(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	l.data = make([]byte, 1<<16)
	for _, tid := range slices.Compact([]int{os.Getpid(), unix.Gettid()}) {
		list, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/children", tid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("find the descendants of a command: this kernel lists no children (CONFIG_PROC_CHILDREN): %w", err)
		}
		l.files = append(l.files, list)
	}
	return nil
}

func (l *childLists) close() {
	closeAll(l.files)
	l.files = nil
}

// checkProc refuses a /proc in which processes have other numbers than they have for this one.
// Under "unshare --pid", or in a chroot, it may be that of another PID namespace, where this
// process has several numbers or is missing.
func checkProc() error {
	status, _ := os.ReadFile("/proc/self/status")
	pid := fmt.Sprintf("pid:\t%d\n", os.Getpid())
	if bytes.Contains(status, []byte("\nNSpid:")) {
		pid = "NS" + pid
	}
	if !bytes.Contains(status, []byte(pid)) {
		return errors.New("the descendants of a command cannot be found, since /proc is missing, or that of another PID namespace; " +
			"try: unshare --mount-proc, or mount -t proc proc /proc")
	}
	return nil
}

// children lists the children of this process.
func (t *processTree) children() (pids []int) {
	for _, list := range t.lists.files {
		for at := 0; ; { // the kernel gives a page at a time
			n, _ := unix.Pread(list, t.lists.data, int64(at))
			if n <= 0 {
				break
			}
			pids = append(pids, numbersIn(t.lists.data[:n])...)
			at += n
		}
	}
	return pids
}

// childrenOf lists the children of another process, if this one may see it.
func childrenOf(pid int) (pids []int) {
	task := fmt.Sprintf("/proc/%d/task/", pid)
	threads, _ := os.ReadDir(task)
	for _, thread := range threads {
		list, _ := os.ReadFile(task + thread.Name() + "/children")
		pids = append(pids, numbersIn(list)...)
	}
	return pids
}

func numbersIn(text []byte) (numbers []int) {
	for field := range bytes.FieldsSeq(text) {
		if number, err := strconv.Atoi(string(field)); err == nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// signalBelow sends signals to the descendants of a process. exists reports whether that process
// has not been reaped: then no other has its number. Of each child a pidfd tells that. It is opened
// before the parent of the child is read, so that both concern the same process.
func (t *processTree) signalBelow(parent int, exists func() bool, signals []unix.Signal) {
	for _, pid := range childrenOf(parent) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if parentOf(pid) == parent && exists() {
			t.signalBelow(pid, func() bool { return !errors.Is(unix.PidfdSendSignal(fd, 0, nil, 0), unix.ESRCH) }, signals)
			for _, sig := range signals {
				_ = unix.PidfdSendSignal(fd, sig, nil, 0)
			}
		}
		_ = unix.Close(fd)
	}
}

// parentOf returns the parent of a process, 0 if that is in another PID namespace, or -1 if the
// process has ended or cannot be seen.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	// The name of the program comes first, in parentheses, and may itself contain parentheses
	// and spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}
