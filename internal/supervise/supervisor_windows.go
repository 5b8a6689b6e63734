package supervise

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run runs body in this process and returns its exit code. On Windows a job object ends the
// command and its descendants when this process ends, and only a debugger can stop a process,
// so that a second process is not needed.
func Run(body func(*Supervisor) int, _ func(w io.Writer, pids []int)) (int, error) {
	s := newSupervisor(&parentHandle{pid: os.Getpid()})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for sig := range signals {
			s.handleSignal(forwardedSignal{sig.(syscall.Signal), true})
		}
	}()
	return body(s), nil
}

// A parentHandle is the supervisor's access to its parent. On Windows one process is both.
type parentHandle struct{ pid int }

func (p *parentHandle) startCommand(_ *Supervisor, cmd *Command) (*processTree, error) {
	return startTree(cmd)
}

// setDeadlines does nothing: there is no parent to notify.
func (p *parentHandle) setDeadlines(_, _ instant) {}

func (p *parentHandle) clearDeadlines() {}

func (p *parentHandle) parentActed() bool { return false }

// forwardSignal does nothing: the console sends Ctrl-C and Ctrl-Break to the command as well.
func (p *parentHandle) forwardSignal(*processTree, forwardedSignal) {}

// Write writes to standard error.
func (s *Supervisor) Write(text []byte) (int, error) { return os.Stderr.Write(text) }
