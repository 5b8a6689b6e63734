//go:build linux || darwin

package supervise

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The signals that are passed on to the command.
var (
	// stopSignals also end the wait for the lease.
	stopSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

	userSignals = []os.Signal{unix.SIGUSR1, unix.SIGUSR2}

	// terminalSignals are passed on only without a terminal: a terminal delivers them to the
	// command itself.
	terminalSignals = []os.Signal{unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}
)

// wakeByte is sent in place of a signal: when the parent is ready to pass on signals, and when
// the supervisor has to read the shared state again.
const wakeByte = 0

// keyboardBit marks a signal that the parent got while it was in the foreground.
const keyboardBit = 0x80

// Run runs body in a process of its own, the supervisor, and watches over it. A program calls
// it once, and must reach this call again when it is started with the same arguments. In the
// process that the user started, Run returns the exit code that body returned in the
// supervisor.
//
// An error means that the supervisor could not be started or did not end in good order; the
// exit code means nothing then. In the latter case the error is a [Failure], and neither the
// supervisor nor any process of the command is left.
//
// Run calls reportStuck, in either process, if processes have not ended some seconds after
// SIGKILL: they run with another user's rights, or are blocked in the kernel. Run goes on
// waiting for them. What reportStuck writes to w goes to standard error.
func Run(body func(*Supervisor) int, reportStuck func(w io.Writer, pids []int)) (int, error) {
	if handshake, ok := os.LookupEnv(handshakeEnv); ok {
		return runSupervisor(handshake, body, reportStuck)
	}
	return runParent(reportStuck)
}

// A parent is the process that the user started.
type parent struct {
	tree     *processTree
	conn     *controlConn
	state    *sharedState
	terminal *terminal
	timer    *bootTimer

	signals chan os.Signal

	// stateChanged requests a look at the shared state. outputDone is closed when all output of
	// the supervisor has been written.
	stateChanged chan struct{}
	outputDone   chan struct{}

	reportStuck func(w io.Writer, pids []int)

	// heldFDs are the descriptors that the supervisor has sent. Only the goroutine of
	// relayOutput uses them.
	heldFDs []int

	// lostAt is when the parent first acted in the supervisor's place, or found it dead.
	lostAt  time.Time
	failure error
}

// runParent starts the supervisor as soon as no key that the user may press can end this
// process. The rest of the preparation runs while the supervisor starts. The supervisor starts
// no command before it receives wakeByte.
func runParent(reportStuck func(w io.Writer, pids []int)) (int, error) {
	p := &parent{
		reportStuck:  reportStuck,
		terminal:     controllingTerminal(),
		signals:      make(chan os.Signal, 16),
		stateChanged: make(chan struct{}, 1),
		outputDone:   make(chan struct{}),
	}
	p.subscribeSignals(stopSignals)
	if err := p.startSupervisor(); err != nil {
		return 0, err
	}
	p.announceReady()
	code := p.eventLoop()
	if p.failure != nil {
		return code, &Failure{Err: p.failure, Lost: p.lostAt}
	}
	return code, nil
}

// startSupervisor starts the supervisor.
func (p *parent) startSupervisor() (err error) {
	if p.timer, err = newBootTimer(); err != nil {
		return err
	}
	var connFD, stateFD int
	if p.conn, connFD, err = newControlConn(); err != nil {
		return err
	}
	if p.state, stateFD, err = newSharedState(); err != nil {
		return err
	}
	wakeFD, err := newWakeFD()
	if err != nil {
		return err
	}
	self, err := programFile()
	if err != nil {
		return err
	}
	handshake := fmt.Sprintf("%d,%d,%d,%d,%d", os.Getpid(), connFD, stateFD, wakeFD, p.commandGroup())
	spec := procSpec{
		path:        self,
		args:        os.Args,
		env:         append(os.Environ(), handshakeEnv+"="+handshake),
		inheritFDs:  []int{connFD, stateFD, wakeFD},
		orphanRoot:  p.commandPID,
		reportStuck: func(pids []int) { p.reportStuck(os.Stderr, pids) },
	}
	continueWithParent(&spec.attr)
	// In a group of its own the supervisor is not stopped with the job. But there the kernel
	// would take it for a process that looks after an orphaned group, which it does not do.
	spec.attr.Setpgid = p.terminal == nil || !inOrphanedGroup()
	if p.tree, err = startTree(spec); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	_ = unix.Close(connFD)
	_ = unix.Close(wakeFD)
	go func() {
		p.conn.relayOutput(os.Stderr, p.handleMessage)
		close(p.outputDone)
	}()
	return nil
}

// handleMessage handles a message of the supervisor and the descriptors that came with it. The
// descriptors are closed when the supervisor sends others, and when its command has ended.
func (p *parent) handleMessage(fds []int) {
	if len(fds) > 0 || p.state.keepFilesOpen.Load() == 0 {
		for _, fd := range p.heldFDs {
			_ = unix.Close(fd)
		}
		p.heldFDs = fds
	}
	notify(p.stateChanged)
}

// subscribeSignals makes signals arrive on p.signals, except those that were ignored when the
// program started, as under nohup: the command must ignore them as well.
func (p *parent) subscribeSignals(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(p.signals, sig)
		}
	}
}

// announceReady finishes the preparation, and lets the supervisor start the command.
func (p *parent) announceReady() {
	p.subscribeSignals(userSignals)
	if p.terminal == nil {
		p.subscribeSignals(terminalSignals)
	}
	// A closed standard error must not end the parent, and the command with it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	_ = p.conn.trySend([]byte{wakeByte}) // fails only if the supervisor has ended
}

// commandGroup returns the process group that the command joins: with a terminal that of the
// parent, so that job control sees one job; otherwise 0, for a group of its own.
func (p *parent) commandGroup() int {
	if p.terminal == nil {
		return 0
	}
	return unix.Getpgrp()
}

func (p *parent) commandPID() int { return int(p.state.commandPID.Load()) }

// eventLoop returns the exit code when no process of the tree is left.
func (p *parent) eventLoop() int {
	code := 0
	var empty <-chan struct{} // nil until the supervisor has ended
	for {
		select {
		case sig := <-p.signals:
			p.forwardSignal(sig)
		case <-p.stateChanged:
			p.enforceDeadlines()
		case <-p.timer.c:
			p.enforceDeadlines()
		case code = <-p.tree.exited:
			if p.state.cleanExit.Load() == 0 {
				// The supervisor's descendants are now children of this process.
				p.recordFailure(ErrDied)
				p.tree.startKill()
			}
			empty = p.tree.empty
		case <-empty:
			<-p.outputDone
			return code
		}
	}
}

func (p *parent) forwardSignal(sig os.Signal) {
	message := byte(sig.(syscall.Signal))
	if p.terminal != nil && p.terminal.foreground() {
		message |= keyboardBit
	}
	// If this fails, the supervisor hangs or has ended. Both are handled elsewhere.
	_ = p.conn.trySend([]byte{message})
}

// enforceDeadlines does what is due by the shared state, and schedules the timer for what comes
// next. It reads the state after the clock: what the supervisor has written until then counts,
// even if the parent has been stopped for a long time.
func (p *parent) enforceDeadlines() {
	at := bootNow()
	switch {
	case getInstant(&p.state.killAt) <= at:
		p.recordFailure(ErrHung)
		p.tree.startKill()
		return
	case getInstant(&p.state.termAt) <= at:
		// If the supervisor resumes after all, it must not take the end of the command for a
		// voluntary one.
		p.state.parentActed.Store(1)
		p.recordLost()
		p.state.termAt.Store(0)
		_ = p.conn.trySend([]byte{wakeByte})
		p.tree.terminate()
	}
	p.timer.schedule(p.state.nextAction())
}

// recordFailure records the first reason why the supervisor did not end in good order.
func (p *parent) recordFailure(err error) {
	p.recordLost()
	if p.failure == nil {
		p.failure = err
	}
}

// recordLost records the first time that the parent acts in the supervisor's place.
func (p *parent) recordLost() {
	if p.lostAt.IsZero() {
		p.lostAt = time.Now()
	}
}

// programFile returns the program that is running, even if its file has been replaced since it
// was started.
func programFile() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Lstat(self); err == nil {
		return self, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find my own program file: %w", err)
	}
	return strings.TrimSuffix(path, " (deleted)"), nil
}
