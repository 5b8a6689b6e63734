//go:build unix

package servers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// startBound is how long a server may take until it is ready, on a machine that
// is busy with other things.
const startBound = 60 * time.Second

// A program says how one server is run.
type program struct {
	name  string              // of the executable
	path  string              // of the executable, if it is not looked for by its name
	args  []string            // its arguments
	dir   string              // its working folder, where its output goes as well
	ready func() error        // nil once it serves
	quit  syscall.Signal      // ends it in good order
	user  *syscall.Credential // who runs it, nil for whoever runs this process
}

// A Process is a server process. Its methods must be called where its TB allows
// Fatal: they end the test if they fail.
type Process struct {
	tb      TB
	program program
	path    string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has been waited for
	paused bool
}

// run starts a server that is stopped when the test ends.
func run(tb TB, p program) *Process {
	tb.Helper()
	s := &Process{tb: tb, program: p, path: p.path}
	if s.path == "" {
		s.path = find(tb, p.name)
	}
	tb.Cleanup(s.cleanup)
	s.Start()
	return s
}

// find returns the path of an executable that must be installed.
func find(tb TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%s is not installed: on Debian and Ubuntu apt-get install %s, on macOS brew install %s",
			name, packages[name].debian, packages[name].brew)
	}
	return path
}

// packages are those that the programs come in.
var packages = map[string]struct{ debian, brew string }{
	"redis-server": {"redis-server", "redis"},
	"postgres":     {"postgresql", "postgresql@15"},
	"initdb":       {"postgresql", "postgresql@15"},
	"pgbouncer":    {"pgbouncer", "pgbouncer"},
}

// Version returns what the server's program says of its version.
func (s *Process) Version() string {
	s.tb.Helper()
	out, err := exec.Command(s.path, "--version").Output()
	if err != nil {
		s.tb.Fatalf("%s --version: %v", s.program.name, err)
	}
	return string(bytes.TrimSpace(out))
}

// Start starts the server, which must not be running, and returns when it is
// ready. Its data is as the last run left it.
func (s *Process) Start() {
	s.tb.Helper()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("%s does not start: %v", s.program.name, err)
	}
	deadline := time.Now().Add(startBound)
	for {
		err := s.program.ready()
		if err == nil {
			return
		}
		select {
		case <-s.exited:
			s.tb.Fatalf("%s has ended while it was starting:\n%s", s.program.name, s.Log())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("%s is not ready after %v: %v\n%s", s.program.name, startBound, err, s.Log())
		}
	}
}

func (s *Process) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(s.path, s.program.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.program.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.program.user}
	if err := startOwned(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.cmd, s.exited, s.paused = cmd, exited, false
	go func() {
		_ = cmd.Wait() // How a server ends is seen in its log.
		close(exited)
	}()
	return nil
}

func (s *Process) logPath() string { return filepath.Join(s.program.dir, s.program.name+".log") }

// Log returns the end of what the server has written to its output.
func (s *Process) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	const most = 4096
	return string(bytes.ToValidUTF8(text[max(0, len(text)-most):], nil))
}

// Kill ends the server as a power cut would, and returns when it is gone.
func (s *Process) Kill() {
	s.tb.Helper()
	s.end(syscall.SIGKILL)
}

// Stop ends the server in good order, and returns when it is gone.
func (s *Process) Stop() {
	s.tb.Helper()
	s.end(s.program.quit)
}

// Pause stops the server's process as it is: connections stay open, and nothing
// is answered.
func (s *Process) Pause() {
	s.tb.Helper()
	s.signal(syscall.SIGSTOP)
	s.paused = true
}

// Resume lets a paused server go on.
func (s *Process) Resume() {
	s.tb.Helper()
	s.signal(syscall.SIGCONT)
	s.paused = false
}

// PID returns the number of the server's process.
func (s *Process) PID() int { return s.cmd.Process.Pid }

func (s *Process) end(sig syscall.Signal) {
	s.tb.Helper()
	if s.paused {
		s.Resume()
	}
	s.signal(sig)
	select {
	case <-s.exited:
	case <-time.After(startBound):
		s.tb.Fatalf("%s goes on after %v", s.program.name, sig)
	}
}

func (s *Process) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("%s cannot be sent %v: %v", s.program.name, sig, err)
	}
}

// cleanup makes sure that the server is gone, and shows its log if the test has
// failed.
func (s *Process) cleanup() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // It may be gone already.
		<-s.exited
	}
	if s.tb.Failed() {
		s.tb.Logf("the log of %s:\n%s", s.program.name, s.Log())
	}
}
