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

	// orphanRoot returns a process whose descendants belong to the tree even if they no longer
	// descend from this process. Only macOS needs it. By default it is the root.
	orphanRoot func() int

	// reportStuck is called once if processes have not ended although they have had SIGKILL. It
	// may wait for a reader.
	reportStuck func(pids []int)

	// rootPID is the process that was started.
	rootPID int

	// exited receives the end of the root.
	exited chan rootEnd

	// empty is closed when no process of the tree is left.
	empty chan struct{}

	// childReaped receives a value when a process of the tree has ended.
	childReaped chan struct{}

	// mu is held while children are reaped, and while signals are sent: the number of a child that
	// is not reaped cannot belong to another process. emptied means that no process of the tree is
	// left. rootReaped means that the root is not.
	mu                  sync.Mutex
	rootReaped, emptied bool

	// lists are what the children are found by. They are open before there is a child.
	lists childLists

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
	// Where orphans become children of this process, no descendant is left when no child is.
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
	for t.hasOrphans() {
		time.Sleep(10 * time.Millisecond)
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
	return syscall.ForkExec(t.path, t.args, &syscall.ProcAttr{
		Env: t.env, Files: []uintptr{0, 1, 2}, Sys: &t.attr,
	})
}

// terminate sends SIGTERM to every process of the tree. It continues those that are stopped, so
// that they can end. It returns at once.
func (t *processTree) terminate() {
	go t.ifNotEmpty(func() { t.signalAll(unix.SIGTERM, unix.SIGCONT) })
}

// ifNotEmpty calls send unless the tree is empty, and reports whether it did.
func (t *processTree) ifNotEmpty(send func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.emptied {
		send()
	}
	return !t.emptied
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

// signalAll sends signals to every process of the tree that it finds.
func (t *processTree) signalAll(signals ...unix.Signal) {
	for _, pid := range t.children() {
		t.signalBelow(pid, func() bool { return true }, signals)
		for _, sig := range signals {
			_ = unix.Kill(pid, sig)
		}
	}
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
		alive := t.ifNotEmpty(func() {
			if n%8 == 0 {
				// Some processes may be out of reach as long as their parents live.
				t.signalAll(unix.SIGKILL)
				return
			}
			// The children of those that end become children of this process, and are killed the
			// next time. Calling it often enough therefore catches a process that keeps forking,
			// ending, and coming back under a new process id.
			for _, pid := range t.children() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		if !alive {
			return
		}
		idle := time.Since(progress)
		if idle > stuckAfter && !reported {
			reported = true
			t.ifNotEmpty(func() { go t.reportStuck(t.children()) })
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
