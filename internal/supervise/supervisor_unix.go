//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// handshakeEnv is the environment variable that makes a process a supervisor.
const handshakeEnv = "HOLDFAST_SUPERVISOR"

// handshakeFormat has the process id of the process that the user started, descriptors, the process
// group of the command, and whether it has SIGTSTP blocked.
const handshakeFormat = "%d,%d,%d,%d,%d,%d,%t"

// A parentHandle is the supervisor's access to its parent.
type parentHandle struct {
	pid   int // of the process that the user started
	conn  *controlConn
	text  *controlConn // for standard error
	state *sharedState

	// commandGroup is the process group that the command joins: that of the parent, or 0 for
	// one of its own.
	commandGroup int
	stopBlocked  bool // in the command

	reportStuck func(w io.Writer, pids []int)
}

// runSupervisor runs body as a supervisor, from the handshake to the exit code.
func runSupervisor(
	handshake string, body func(*Supervisor) int, reportStuck func(w io.Writer, pids []int),
) (int, error) {
	_ = os.Unsetenv(handshakeEnv)
	parent, err := parseHandshake(handshake)
	if err != nil {
		return 0, fmt.Errorf("%w; is %s set in the environment?", err, handshakeEnv)
	}
	parent.reportStuck = reportStuck
	// Signals that are sent to every process of a service or a session do not end the supervisor,
	// and the command with it: the parent passes them on. Nor does a reader that has closed its
	// end. They are caught, not ignored, since the command would inherit that.
	subscribe(make(chan os.Signal, 1), append([]os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}, stopSignals...))
	setProcessName("supervisor")
	reserveThreads(supervisorThreads)
	s := newSupervisor(parent)
	go s.receiveSignals()
	code := body(s)
	parent.state.result.Store(int64(code) + 1)
	return code, nil
}

// parseHandshake opens the descriptors that the parent has passed.
func parseHandshake(handshake string) (*parentHandle, error) {
	parent := &parentHandle{}
	var connFD, textFD, stateFD, wakeFD int
	_, err := fmt.Sscanf(handshake, handshakeFormat, &parent.pid, &connFD, &textFD, &stateFD, &wakeFD,
		&parent.commandGroup, &parent.stopBlocked)
	if err != nil {
		return nil, errors.New("cannot read what the parent process has passed on")
	}
	unix.CloseOnExec(wakeFD) // which stays open until this process ends
	if parent.conn, err = openControlConn(connFD); err != nil {
		return nil, err
	}
	if parent.text, err = openControlConn(textFD); err != nil {
		return nil, err
	}
	if parent.state, err = mapSharedState(stateFD); err != nil {
		return nil, err
	}
	return parent, unix.Close(stateFD)
}

// receiveSignals handles the signals and answers that the parent sends, until the parent has ended.
func (s *Supervisor) receiveSignals() {
	for {
		messages, _ := s.parent.conn.receive()
		if len(messages) == 0 {
			s.cancel(ErrAbandoned)
			return
		}
		for _, m := range messages {
			if m == startMessage {
				s.mayStart <- struct{}{} // there is room: one answer for one question
			} else {
				s.handleSignal(syscall.Signal(m&^keyboardBit), m&keyboardBit != 0)
			}
		}
	}
}

// Write passes text on to the parent, which writes it to its standard error: a supervisor is in
// the background of a terminal and might be stopped for writing to it. Text for which there is
// no room, because the parent is stopped or waits for a reader, is dropped. Once the parent has
// ended, Write writes to standard error directly, if there is room.
func (s *Supervisor) Write(text []byte) (int, error) {
	err := s.parent.text.trySend(text)
	if err == nil || errors.Is(err, unix.EAGAIN) {
		return len(text), nil
	}
	if n, _ := unix.Poll([]unix.PollFd{{Fd: 2, Events: unix.POLLOUT}}, 0); n == 0 {
		return len(text), nil
	}
	return os.Stderr.Write(text)
}

// ask asks the parent whether a command may start.
func (p *parentHandle) ask(*Supervisor) { p.conn.sendMessage(askMessage) }

// reportEnd tells the parent which signal has ended the command, or the wait for the lease. 0 means
// that none has.
func (p *parentHandle) reportEnd(sig syscall.Signal) { p.state.endSignal.Store(int64(sig)) }

// hasActed reports whether the parent has sent SIGTERM because this process hung.
func (p *parentHandle) hasActed() bool { return p.state.parentActed.Load() == 1 }

// startCommand starts the command.
func (p *parentHandle) startCommand(s *Supervisor, cmd *Command) (*processTree, error) {
	tree := &processTree{path: cmd.Path, args: cmd.Args, env: cmd.Env, stopBlocked: p.stopBlocked}
	tree.reportStuck = func(pids []int) { p.reportStuck(s, pids) }
	var pinned []int
	for i, f := range slices.Concat(cmd.Hold, cmd.Pin) {
		fd, err := fileDescriptor(f)
		if err != nil {
			return nil, err
		}
		pinned = append(pinned, fd)
		if i < len(cmd.Hold) {
			tree.inheritFDs = append(tree.inheritFDs, fd)
		}
	}
	// If the supervisor is killed, the parent keeps the files open until it has killed the
	// descendants. So it gets them before there is one.
	p.state.keepFilesOpen.Store(1)
	p.conn.sendMessage(lookMessage, pinned...)
	tree.attr.Setpgid = true
	tree.attr.Pgid = p.commandGroup
	onParentDeath(&tree.attr, unix.SIGKILL)
	if variables := systemdVariables(cmd.Env, p.pid); len(variables) > 0 {
		script := "export " + strings.Join(variables, "=$$ ") + `=$$; exec "$@"`
		tree.path, tree.args = "/bin/sh", append([]string{"sh", "-c", script, "sh"}, cmd.Args...)
	}
	p.reportEnd(0)
	p.state.parentActed.Store(0)
	err := tree.start()
	if errors.Is(err, unix.ENOEXEC) { // a script without "#!", which execvp runs by the shell
		tree.path, tree.args = "/bin/sh", append([]string{"sh", cmd.Path}, cmd.Args[1:]...)
		err = tree.start()
	}
	if err != nil {
		return nil, err
	}
	p.state.commandPID.Store(int64(tree.rootPID))
	return tree, nil
}

// systemdVariables returns the variables of sd_listen_fds(3) and sd_watchdog_enabled(3) whose value
// is pid. They must have the process id of the command instead, which is known when it runs.
func systemdVariables(env []string, pid int) (names []string) {
	for _, name := range []string{"LISTEN_PID", "WATCHDOG_PID"} {
		if slices.Contains(env, fmt.Sprintf("%s=%d", name, pid)) {
			names = append(names, name)
		}
	}
	return names
}

// fileDescriptor returns the descriptor of a file without making it a blocking one.
func fileDescriptor(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	number := -1
	err = raw.Control(func(fd uintptr) { number = int(fd) })
	return number, err
}

// setDeadlines sets when the parent sends SIGTERM and SIGKILL if the supervisor has not done
// so. It notifies the parent if the next of the two comes sooner than before.
func (p *parentHandle) setDeadlines(term, kill instant) {
	beforeTerm, beforeKill := p.state.deadlines()
	p.state.setDeadlines(term, kill)
	if min(term, kill) < min(beforeTerm, beforeKill) {
		p.conn.sendMessage(lookMessage)
	}
}

// clearDeadlines resets the shared state and notifies the parent that there is nothing to watch
// over any more.
func (p *parentHandle) clearDeadlines() {
	p.state.setDeadlines(never, never)
	p.state.commandPID.Store(0)
	p.state.keepFilesOpen.Store(0)
	p.conn.sendMessage(lookMessage)
}

// forwardSignal sends a signal to the command. Where the command is in the group of the parent,
// the terminal has already sent the signals of its keyboard to it. Many programs would take a
// second one for "at once".
func (p *parentHandle) forwardSignal(tree *processTree, sig syscall.Signal, fromKeyboard bool) {
	if ownGroup := p.commandGroup == 0; ownGroup || !fromKeyboard {
		tree.signalRoot(sig, ownGroup)
	}
}
