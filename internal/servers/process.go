//go:build unix

package servers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// startBound is how long a server may take until it is ready, on a machine that is busy with other
// things.
const startBound = 60 * time.Second

// A serverSpec describes how to run one server.
type serverSpec struct {
	name  string              // of the executable
	path  string              // of the executable, "" to find it by its name
	args  []string            // its arguments
	dir   string              // its working folder, which also gets its output
	ready func() error        // nil once it serves
	user  *syscall.Credential // the user of the process, nil for the user of this process

	// kill is the signal that ends the server at once, SIGKILL if it is 0. children are the
	// processes that it has started and that are paused with it.
	kill     syscall.Signal
	children bool
}

// A Process is a server process. Its methods end the test if they fail: they are called on the
// goroutine of the test.
type Process struct {
	tb   testing.TB
	spec serverSpec
	path string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
	paused bool
}

// runServer starts a server that is stopped when the test ends.
func runServer(tb testing.TB, spec serverSpec) *Process {
	tb.Helper()
	s := &Process{tb: tb, spec: spec, path: spec.path}
	if s.path == "" {
		s.path = findProgram(tb, spec.name)
	}
	tb.Cleanup(s.cleanup)
	s.Start()
	return s
}

// findProgram returns the path of an executable that must be installed. It may be in a folder that
// is on the PATH of root alone.
func findProgram(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", name))
	}
	if err != nil {
		tb.Fatalf("%s is not installed: scripts/needs installs it", name)
	}
	return path
}

// Start starts the server, which must not be running, and returns when it is ready. Its data is as
// the last run left it.
func (s *Process) Start() {
	s.tb.Helper()
	if err := s.startProcess(); err != nil {
		s.tb.Fatalf("%s does not start: %v", s.spec.name, err)
	}
	deadline := time.Now().Add(startBound)
	for {
		err := s.spec.ready()
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			s.tb.Fatalf("%s has ended while it was starting:\n%s", s.spec.name, s.Log())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%s is not ready after %v: %v\n%s", s.spec.name, startBound, err, s.Log())
		}
	}
}

func (s *Process) startProcess() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(s.path, s.spec.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.spec.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.spec.user}
	if err := startOwned(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.cmd, s.exited, s.paused = cmd, exited, false
	go func() {
		// Package drivertest finds by labels what a case leaves behind. A server may outlive its
		// case.
		pprof.SetGoroutineLabels(context.Background())
		_ = cmd.Wait() // The log shows how a server has ended.
		close(exited)
	}()
	return nil
}

func (s *Process) logPath() string { return filepath.Join(s.spec.dir, s.spec.name+".log") }

// Log returns the end of the server's output.
func (s *Process) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	const most = 4096
	return string(bytes.ToValidUTF8(text[max(0, len(text)-most):], nil))
}

// Kill ends the server as a crash would, and returns when it has exited.
func (s *Process) Kill() {
	s.tb.Helper()
	if s.paused {
		s.Resume()
	}
	sig := cmp.Or(s.spec.kill, syscall.SIGKILL)
	s.sendSignal(sig)
	select {
	case <-s.exited:
	case <-time.After(startBound):
		s.tb.Fatalf("%s goes on after %v", s.spec.name, sig)
	}
}

// Restart kills the server and starts it again, with the data that it has on disk.
func (s *Process) Restart() {
	s.tb.Helper()
	s.Kill()
	s.Start()
}

// Pause stops the server. Connections stay open, and the server does not respond.
func (s *Process) Pause() {
	s.tb.Helper()
	s.sendSignal(syscall.SIGSTOP)
	storecheck.Eventually(s.tb, "stop of "+s.spec.name, s.isStopped) // It starts no other process from now on.
	s.signalChildren(syscall.SIGSTOP)
	s.paused = true
}

// Resume continues a paused server.
func (s *Process) Resume() {
	s.tb.Helper()
	s.signalChildren(syscall.SIGCONT)
	s.sendSignal(syscall.SIGCONT)
	s.paused = false
}

// isStopped reports whether the server runs no more, where the system tells: on Linux.
func (s *Process) isStopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.ContainsAny(state[:1], "TZX")
}

// PID returns the process ID of the server.
func (s *Process) PID() int { return s.cmd.Process.Pid }

func (s *Process) sendSignal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatalf("%s cannot be sent %v: %v", s.spec.name, sig, err)
	}
}

func (s *Process) signalChildren(sig syscall.Signal) {
	s.tb.Helper()
	if !s.spec.children {
		return
	}
	pids, err := childProcesses(s.PID())
	if err != nil {
		s.tb.Fatalf("list the processes of %s: %v", s.spec.name, err)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // It may have ended.
	}
}

// cleanup makes sure that the server has exited, and shows its log if the test has failed.
func (s *Process) cleanup() {
	if s.cmd != nil {
		s.Kill()
	}
	if s.tb.Failed() {
		s.tb.Logf("the log of %s:\n%s", s.spec.name, s.Log())
	}
}

// childProcesses returns the PIDs of the processes that a process has started.
func childProcesses(parent int) ([]int, error) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	if err != nil { // this is not Linux
		if list, err = exec.Command("pgrep", "-P", strconv.Itoa(parent)).Output(); err != nil {
			return nil, err
		}
	}
	var pids []int
	for field := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
