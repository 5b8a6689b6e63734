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

// A tree is a process that we have started, with all its descendants. There can
// be but one at a time in a process, since whatever child ends is taken to belong
// to it.
type tree struct {
	// root is the process that was started.
	root int

	// exited receives the exit code of the root when it has ended.
	exited chan int

	// empty is closed when no process of the tree is left.
	empty chan struct{}

	// stray names the process whose descendants belong to the tree even if they
	// are not ours any more. Only macOS needs it.
	stray func() int

	reaped  atomic.Bool
	killing sync.Once
}

// A seed is what a tree grows from.
type seed struct {
	path string
	args []string
	env  []string

	// keep are descriptors that the process inherits under their own numbers.
	// All others that we have opened are closed for it.
	keep []int

	attr syscall.SysProcAttr

	// stray is what it is in a tree. By default it is the root.
	stray func() int
}

// plant starts a tree.
func plant(s seed) (*tree, error) {
	if err := becomeReaper(); err != nil {
		return nil, err
	}
	t := &tree{exited: make(chan int, 1), empty: make(chan struct{}), stray: s.stray}
	if t.stray == nil {
		t.stray = func() int { return t.root }
	}
	started := make(chan error)
	go t.tend(s, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

// tend starts the root and reaps until nothing is left of the tree. It does not
// give back its thread before: to Linux the parent of a process is a thread, and
// the parent-death signal is sent when that ends.
func (t *tree) tend(s seed, started chan<- error) {
	runtime.LockOSThread()
	pid, err := s.start()
	t.root = pid
	started <- err
	if err != nil {
		return
	}
	t.reap()
	for t.lingers() {
		time.Sleep(10 * time.Millisecond)
	}
	close(t.empty)
}

func (s *seed) start() (int, error) {
	for _, fd := range s.keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return 0, fmt.Errorf("hand down descriptor %d: %w", fd, err)
		}
		defer unix.CloseOnExec(fd)
	}
	return syscall.ForkExec(s.path, s.args, &syscall.ProcAttr{
		Env: s.env, Files: []uintptr{0, 1, 2}, Sys: &s.attr,
	})
}

// reap collects what has ended until there is no child any more. Where orphans
// come to us, that means that there is no descendant any more.
func (t *tree) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		if pid == t.root {
			t.reaped.Store(true)
			t.exited <- exitCode(status)
		}
	}
}

// exitCode is what a shell would report.
func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// terminate asks every process of the tree to end. Those that are stopped are
// woken, so that they can. It returns at once.
func (t *tree) terminate() {
	go t.signalAll(unix.SIGTERM, unix.SIGCONT)
}

// kill ends every process of the tree, those too that it goes on starting
// meanwhile. It returns at once; empty is closed when it is done.
func (t *tree) kill() {
	t.killing.Do(func() { go t.killAll() })
}

func (t *tree) killAll() {
	if !t.reaped.Load() {
		// What is still in the group that the root leads dies in one blow,
		// however fast it forks.
		_ = unix.Kill(-t.root, unix.SIGKILL)
	}
	pause := time.Millisecond
	for n := 1; ; n++ {
		t.strike()
		if n%8 == 0 {
			// Some may be out of reach as long as their parents do not die.
			t.signalAll(unix.SIGKILL)
			pause = min(2*pause, 20*time.Millisecond)
		}
		select {
		case <-t.empty:
			return
		case <-time.After(pause):
		}
	}
}

// descends reports whether pid is a descendant of root.
func descends(pid, root int, parents map[int]int) bool {
	// The picture was not taken in one moment, so that it might have a circle
	// in it.
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
