//go:build linux || darwin

package supervise

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A processTree is a process that is started, with all its descendants. There can be only one
// at a time in a process, since every child of the process belongs to it.
type processTree struct {
	path string
	args []string
	env  []string
	attr syscall.SysProcAttr

	// inheritFDs are descriptors that the process inherits under their own numbers. All others
	// that this process has opened are closed in it.
	inheritFDs []int

	stopBlocked bool // SIGTSTP is blocked in the process

	// orphanRoot returns a process whose descendants belong to the tree even if they no longer
	// descend from this process. Only macOS needs it. By default it is the root.
	orphanRoot func() int

	// reportStuck is called once if processes have not ended although they have had SIGKILL. It
	// may wait for a reader.
	reportStuck func(pids []int)

	rootPID     int           // the process that was started
	exited      chan rootEnd  // receives the end of the root
	empty       chan struct{} // is closed when no process of the tree is left
	childReaped chan struct{} // receives a value when a process of the tree has ended

	// mu is held while children are reaped, and while signals are sent: the number of a child that
	// is not reaped cannot belong to another process.
	mu         sync.Mutex
	rootReaped bool
	emptied    bool // no process of the tree is left

	lists    childLists // open before there is a child
	killOnce sync.Once
}

func endOf(status unix.WaitStatus) rootEnd {
	if status.Signaled() {
		return rootEnd{128 + int(status.Signal()), status.Signal()}
	}
	return rootEnd{code: status.ExitStatus()}
}

// start starts the process, and the goroutine that reaps it and its descendants.
func (t *processTree) start() error {
	t.exited, t.empty, t.childReaped = make(chan rootEnd, 1), make(chan struct{}), make(chan struct{}, 1)
	if t.orphanRoot == nil {
		t.orphanRoot = func() int { return t.rootPID }
	}
	started := make(chan error)
	go t.reapLoop(started)
	return <-started
}

// reapLoop starts the root and reaps until no process of the tree is left. It keeps its thread
// until then: for Linux the parent of a process is a thread, and the parent-death signal is
// sent when that thread ends.
func (t *processTree) reapLoop(started chan<- error) {
	runtime.LockOSThread()
	err := t.lists.open()
	if err == nil {
		t.rootPID, err = t.forkExec()
	}
	if err != nil {
		t.lists.close()
		started <- err
		return
	}
	started <- nil
	for {
		pid, status, err := t.reapOne()
		if err != nil {
			break
		}
		if pid == t.rootPID {
			t.exited <- endOf(status)
		}
		notify(t.childReaped)
	}
	t.mu.Lock()
	t.emptied = true
	t.lists.close()
	t.mu.Unlock()
	close(t.empty)
}

func (t *processTree) forkExec() (int, error) {
	for _, fd := range t.inheritFDs {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return 0, fmt.Errorf("hand down descriptor %d: %w", fd, err)
		}
		defer unix.CloseOnExec(fd)
	}
	defer setStopBlocked(setStopBlocked(t.stopBlocked))
	return syscall.ForkExec(t.path, t.args, &syscall.ProcAttr{
		Env: t.env, Files: []uintptr{0, 1, 2}, Sys: &t.attr,
	})
}

// terminate sends SIGTERM to every process of the tree. It continues those that are stopped, so
// that they can end. It returns at once.
func (t *processTree) terminate() {
	go t.signalAll(true, unix.SIGTERM, unix.SIGCONT)
}

// signalRoot sends a signal to the root, or to the group that it leads, unless it has ended.
func (t *processTree) signalRoot(sig syscall.Signal, group bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.rootReaped:
	case group:
		_ = unix.Kill(-t.rootPID, sig)
	default:
		_ = unix.Kill(t.rootPID, sig)
	}
}

// signalAll sends signals to the children of this process that belong to the tree, and with deep to
// every process of the tree that it finds. It returns the children.
func (t *processTree) signalAll(deep bool, signals ...unix.Signal) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.emptied {
		return nil
	}
	children := t.children()
	for _, pid := range children {
		if deep {
			t.signalBelow(pid, func() bool { return true }, signals)
		}
		for _, sig := range signals {
			_ = unix.Kill(pid, sig)
		}
	}
	return children
}

// startKill ends every process of the tree, including those that it starts meanwhile. It
// returns at once; empty is closed when the tree has ended.
func (t *processTree) startKill() {
	t.killOnce.Do(func() { go t.killLoop() })
}

func (t *processTree) killLoop() {
	// This kills at one stroke all processes that are still in the group that the root leads,
	// however fast they fork.
	t.signalRoot(unix.SIGKILL, true)
	progress := time.Now()
	reported := false
	for n := 1; ; n++ {
		// The children of those that end become children of this process, and are killed the next
		// time. So a process that keeps forking, ending, and coming back under a new process id is
		// caught after some rounds. Some have parents that cannot be killed: they stay below.
		children := t.signalAll(n%8 == 0, unix.SIGKILL)
		idle := time.Since(progress)
		if idle > stuckAfter && !reported && len(children) > 0 {
			reported = true
			go t.reportStuck(children)
		}
		// The longer no process ends, the longer the next may take. A process that ends passes
		// its children to this one.
		select {
		case <-t.empty:
			return
		case <-t.childReaped:
			progress = time.Now()
		case <-time.After(min(max(idle/10, time.Millisecond), time.Second)):
		}
	}
}

// stuckAfter is how long a process may take to end after SIGKILL before that is reported. On a
// busy machine hundreds of milliseconds are common.
const stuckAfter = 3 * time.Second

// reserveThreads makes the Go runtime have n threads more than it uses. It keeps them for later,
// when a command may have taken all processes that its user, or its control group, may have: for
// want of a thread the runtime ends the program.
func reserveThreads(n int) {
	var locked sync.WaitGroup
	release := make(chan struct{})
	locked.Add(n)
	for range n {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			<-release
		}()
	}
	locked.Wait()
	close(release)
}
