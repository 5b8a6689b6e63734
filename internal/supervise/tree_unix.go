//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A processTree is a process that was started, with all its descendants. There can be only one
// at a time in a process, since every child that ends is taken to belong to it.
type processTree struct {
	// rootPID is the process that was started.
	rootPID int

	// exited receives the exit code of the root when it has ended.
	exited chan int

	// empty is closed when no process of the tree is left.
	empty chan struct{}

	// orphanRoot returns a process whose descendants belong to the tree even if they no longer
	// descend from this process. Only macOS needs it.
	orphanRoot func() int

	// reportStuck is called once if processes have not ended although they have had SIGKILL.
	reportStuck func(pids []int)

	// emptied means that no process of the tree is left. Their ids may belong to another tree
	// by then, so that no signal is sent any more. mu is held while signals are sent.
	mu      sync.Mutex
	emptied bool

	// childReaped receives a value when a process of the tree has ended.
	childReaped chan struct{}

	rootReaped atomic.Bool
	killOnce   sync.Once
}

// A procSpec describes the process that startTree starts.
type procSpec struct {
	path string
	args []string
	env  []string

	// inheritFDs are descriptors that the process inherits under their own numbers. All others
	// that this process has opened are closed in it.
	inheritFDs []int

	attr syscall.SysProcAttr

	// orphanRoot is as in processTree. By default it is the root.
	orphanRoot func() int

	// reportStuck is as in processTree.
	reportStuck func(pids []int)
}

// startTree starts a process and the goroutine that reaps it and its descendants.
func startTree(spec procSpec) (*processTree, error) {
	if err := becomeReaper(); err != nil {
		return nil, err
	}
	tree := &processTree{
		exited:      make(chan int, 1),
		empty:       make(chan struct{}),
		orphanRoot:  spec.orphanRoot,
		reportStuck: spec.reportStuck,
		childReaped: make(chan struct{}, 1),
	}
	if tree.orphanRoot == nil {
		tree.orphanRoot = func() int { return tree.rootPID }
	}
	started := make(chan error)
	go tree.reapLoop(spec, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return tree, nil
}

// reapLoop starts the root and reaps until no process of the tree is left. It keeps its thread
// until then: for Linux the parent of a process is a thread, and the parent-death signal is
// sent when that thread ends.
func (t *processTree) reapLoop(spec procSpec, started chan<- error) {
	runtime.LockOSThread()
	pid, err := spec.forkExec()
	t.rootPID = pid
	started <- err
	if err != nil {
		return
	}
	t.reapChildren()
	for t.hasOrphans() {
		time.Sleep(10 * time.Millisecond)
	}
	t.mu.Lock()
	t.emptied = true
	t.mu.Unlock()
	close(t.empty)
}

func (s *procSpec) forkExec() (int, error) {
	for _, fd := range s.inheritFDs {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return 0, fmt.Errorf("hand down descriptor %d: %w", fd, err)
		}
		defer unix.CloseOnExec(fd)
	}
	return syscall.ForkExec(s.path, s.args, &syscall.ProcAttr{
		Env: s.env, Files: []uintptr{0, 1, 2}, Sys: &s.attr,
	})
}

// reapChildren reaps until this process has no child any more. Where orphans become children of
// this process, no descendant is left then.
func (t *processTree) reapChildren() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		if pid == t.rootPID {
			t.rootReaped.Store(true)
			t.exited <- exitCode(status)
		}
		notify(t.childReaped)
	}
}

// exitCode returns what a shell would report.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
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

// startKill ends every process of the tree, including those that it starts meanwhile. It
// returns at once; empty is closed when the tree has ended.
func (t *processTree) startKill() {
	t.killOnce.Do(func() { go t.killLoop() })
}

func (t *processTree) killLoop() {
	t.ifNotEmpty(func() {
		if !t.rootReaped.Load() {
			// This kills at one stroke all processes that are still in the group that the root
			// leads, however fast they fork.
			_ = unix.Kill(-t.rootPID, unix.SIGKILL)
		}
	})
	progress := time.Now()
	reported := false
	for n := 1; ; n++ {
		alive := t.ifNotEmpty(func() {
			t.killChildren()
			if n%8 == 0 {
				// Some processes may be out of reach as long as their parents live.
				t.signalAll(unix.SIGKILL)
			}
		})
		if !alive {
			return
		}
		idle := time.Since(progress)
		if idle > stuckAfter && !reported {
			reported = true
			t.reportStuck(t.survivors())
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

// descends reports whether pid is a descendant of root.
func descends(pid, root int, parents map[int]int) bool {
	// parents was not read in one atomic step, so that it might contain a cycle.
	for range len(parents) {
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == root {
			return true
		}
		pid = parent
	}
	return false
}
