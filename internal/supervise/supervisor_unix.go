//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// handshakeEnv is the environment variable that makes a process a supervisor.
const handshakeEnv = "HOLDFAST_SUPERVISOR"

// A parentHandle is the supervisor's access to its parent.
type parentHandle struct {
	pid   int
	conn  *controlConn
	state *sharedState

	// commandGroup is the process group that the command joins: that of the parent, or 0 for
	// one of its own.
	commandGroup int

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
	// A reader that has closed its end makes the write fail; it must not end the supervisor.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	s := newSupervisor(parent)
	s.ready.Add(2)
	go s.receiveSignals()
	go func() {
		setProcessName()
		surviveSignals()
		s.ready.Done()
	}()
	code := body(s)
	parent.state.cleanExit.Store(1)
	return code, nil
}

// parseHandshake opens the descriptors that the parent has passed.
func parseHandshake(handshake string) (*parentHandle, error) {
	var parentPID, connFD, stateFD, wakeFD, commandGroup int
	_, err := fmt.Sscanf(handshake, "%d,%d,%d,%d,%d", &parentPID, &connFD, &stateFD, &wakeFD, &commandGroup)
	if err != nil {
		return nil, errors.New("cannot read what the parent process has passed on")
	}
	for _, fd := range []int{connFD, stateFD, wakeFD} {
		unix.CloseOnExec(fd) // wakeFD stays open until this process ends
	}
	parent := &parentHandle{pid: parentPID, commandGroup: commandGroup}
	if parent.conn, err = openControlConn(connFD); err != nil {
		return nil, err
	}
	if parent.state, err = mapSharedState(stateFD); err != nil {
		return nil, err
	}
	return parent, unix.Close(stateFD)
}

// surviveSignals makes a supervisor survive the signals that may be sent to every process of a
// service or a session at once. The parent passes them on; a supervisor that died of one would
// take the command with it. The signals are caught instead of being set to ignored, because the
// command would inherit that.
func surviveSignals() {
	discarded := make(chan os.Signal, 1)
	for _, sig := range slices.Concat(stopSignals, userSignals) {
		if !signal.Ignored(sig) {
			signal.Notify(discarded, sig)
		}
	}
}

// receiveSignals handles the signals that the parent passes on, until the parent has ended.
func (s *Supervisor) receiveSignals() {
	parentReady := sync.OnceFunc(s.ready.Done)
	defer parentReady()
	data := make([]byte, 64)
	for {
		n, _, err := s.parent.conn.receive(data)
		if n == 0 || err != nil {
			s.onParentExit()
			return
		}
		for _, b := range data[:n] {
			if b == wakeByte {
				parentReady()
				s.Renewed()
				continue
			}
			s.handleSignal(forwardedSignal{syscall.Signal(b &^ keyboardBit), b&keyboardBit != 0})
		}
	}
}

// Write passes text on to the parent, which writes it to its standard error: a supervisor is in
// the background of a terminal and might be stopped for writing to it. Text for which there is
// no room, because the parent itself is stopped, is dropped. Once the parent has ended, Write
// writes to standard error directly.
func (s *Supervisor) Write(text []byte) (int, error) {
	err := s.parent.conn.trySend(text)
	if err == nil || errors.Is(err, unix.EAGAIN) {
		return len(text), nil
	}
	return os.Stderr.Write(text)
}

// startCommand starts the command.
func (p *parentHandle) startCommand(s *Supervisor, cmd *Command) (*processTree, error) {
	spec := procSpec{path: cmd.Path, args: cmd.Args, env: cmd.Env}
	spec.reportStuck = func(pids []int) { p.reportStuck(s, pids) }
	var pinned []int
	for i, f := range slices.Concat(cmd.Hold, cmd.Pin) {
		fd, err := fileDescriptor(f)
		if err != nil {
			return nil, err
		}
		pinned = append(pinned, fd)
		if i < len(cmd.Hold) {
			spec.inheritFDs = append(spec.inheritFDs, fd)
		}
	}
	// The parent keeps the files open as well: if the supervisor is killed, the parent has to
	// end the descendants first. It gets the files before there is a descendant. If the parent
	// has ended, it needs nothing.
	p.state.keepFilesOpen.Store(1)
	_ = p.conn.trySend([]byte{0}, pinned...)
	spec.attr.Setpgid = true
	spec.attr.Pgid = p.commandGroup
	killWithParent(&spec.attr)
	tree, err := startTree(spec)
	if err != nil {
		return nil, err
	}
	p.state.commandPID.Store(int64(tree.rootPID))
	return tree, nil
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
	before := p.state.nextAction()
	setInstant(&p.state.termAt, term)
	setInstant(&p.state.killAt, kill)
	if p.state.nextAction() < before {
		_ = p.conn.trySend([]byte{0})
	}
}

// parentActed reports whether the parent has acted in the supervisor's place.
func (p *parentHandle) parentActed() bool { return p.state.parentActed.Load() == 1 }

// clearDeadlines resets the shared state and notifies the parent that there is nothing to watch
// over any more.
func (p *parentHandle) clearDeadlines() {
	p.setDeadlines(never, never)
	p.state.commandPID.Store(0)
	p.state.parentActed.Store(0)
	p.state.keepFilesOpen.Store(0)
	_ = p.conn.trySend([]byte{0})
}

// forwardSignal sends a signal to the command. Where the command is in the group of the parent,
// the terminal has already sent the signals of its keyboard to it. Many programs would take a
// second one for "at once".
func (p *parentHandle) forwardSignal(tree *processTree, sig forwardedSignal) {
	if tree.rootReaped.Load() {
		return
	}
	switch {
	case p.commandGroup == 0:
		_ = unix.Kill(-tree.rootPID, sig.Signal)
	case sig.fromKeyboard && (sig.Signal == unix.SIGINT || sig.Signal == unix.SIGQUIT):
	default:
		_ = unix.Kill(tree.rootPID, sig.Signal)
	}
}
