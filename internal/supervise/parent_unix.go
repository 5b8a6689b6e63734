//go:build linux || darwin

package supervise

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that are passed on to the command.
func passedOn(tty *terminal) []os.Signal {
	signals := append([]os.Signal{unix.SIGUSR1, unix.SIGUSR2}, stopSignals...)
	if tty == nil { // else it delivers these itself
		signals = append(signals, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH)
	}
	return signals
}

// The threads that each of the two has before there is a command, beside those of the Go runtime.
// They are more than were ever seen in use: the parent's work is done by two goroutines, the
// supervisor's by these and a client of a store.
const (
	parentThreads     = 6
	supervisorThreads = 12
)

// Run runs body in a process of its own, the supervisor, and watches over it. A program calls
// it once, and must reach this call again when it is started with the same arguments. In the
// process that the user started, Run returns the exit code that body returned in the
// supervisor. If a signal has ended the command, or the wait for its lease, and this process got
// the same signal, then this process ends by it.
//
// An error means that the supervisor could not be started or did not end in good order; the
// exit code means nothing then. In the latter case the error is [ErrDied] or [ErrHung], and neither
// the supervisor nor any process of the command is left.
//
// Run calls reportStuck, in either process, if processes have not ended some seconds after
// SIGKILL: they run with another user's rights, or are blocked in the kernel. Run goes on
// waiting for them. What reportStuck writes to w goes to standard error.
func Run(body func(*Supervisor) int, reportStuck func(w io.Writer, pids []int)) (int, error) {
	handshake, given := os.LookupEnv(handshakeEnv)
	switch {
	case handshake == behindFront:
		setProcessName("parent")
		return runParent(os.Getppid(), reportStuck)
	case given:
		return runSupervisor(handshake, body, reportStuck)
	case mayHaveOtherChildren():
		return runFront()
	}
	return runParent(os.Getpid(), reportStuck)
}

// A parent is the process that the user started, or the one behind its front.
type parent struct {
	tree     *processTree
	conn     *controlConn
	text     *controlConn // what goes to standard error
	state    *sharedState
	terminal *terminal
	timer    *bootTimer

	signals chan os.Signal
	got     map[syscall.Signal]bool

	// stateChanged requests a look at the shared state. written is closed when all that the
	// supervisor had to say is on standard error.
	stateChanged chan struct{}
	written      chan struct{}

	reportStuck func(w io.Writer, pids []int)

	failure error // the first reason why the supervisor did not end in good order
}

// runParent handles the signals of the keyboard first, so that Ctrl-C does not leave a supervisor
// behind. The rest of the preparation runs while the supervisor starts: that starts no command
// before it receives startMessage. pid is the process that the user started.
func runParent(pid int, reportStuck func(w io.Writer, pids []int)) (int, error) {
	_ = os.Unsetenv(handshakeEnv)
	p := &parent{
		reportStuck:  reportStuck,
		terminal:     controllingTerminal(),
		signals:      make(chan os.Signal, 16),
		got:          map[syscall.Signal]bool{},
		stateChanged: make(chan struct{}, 1),
		written:      make(chan struct{}),
	}
	subscribe(p.signals, stopSignals)
	if err := p.startSupervisor(pid); err != nil {
		return 0, err
	}
	p.finishPreparation()
	code := p.eventLoop()
	// Standard error may have no reader. A signal that comes from here on ends this process at once,
	// one that has come before ends it after a second.
	signal.Stop(p.signals)
	for len(p.signals) > 0 {
		p.got[(<-p.signals).(syscall.Signal)] = true
	}
	for sig := range p.got {
		if slices.Contains(stopSignals, os.Signal(sig)) {
			time.AfterFunc(time.Second, func() { EndBy(sig) })
		}
	}
	<-p.written
	if p.failure != nil {
		return code, p.failure
	}
	if sig := syscall.Signal(p.state.endSignal.Load()); p.got[sig] && code == 128+int(sig) {
		EndBy(sig)
	}
	return code, nil
}

// startSupervisor starts the supervisor.
func (p *parent) startSupervisor(pid int) (err error) {
	if p.timer, err = newBootTimer(); err != nil {
		return err
	}
	var connFD, textFD, stateFD int
	if p.conn, connFD, err = newControlConn(); err != nil {
		return err
	}
	if p.text, textFD, err = newControlConn(); err != nil {
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
	// With a terminal the command joins this process's group, so that job control sees one job.
	commandGroup := 0
	if p.terminal != nil {
		commandGroup = unix.Getpgrp()
	}
	handshake := fmt.Sprintf(handshakeFormat, pid, connFD, textFD, stateFD, wakeFD, commandGroup)
	p.tree = &processTree{
		path:        self,
		args:        os.Args,
		env:         append(os.Environ(), handshakeEnv+"="+handshake),
		inheritFDs:  []int{connFD, textFD, stateFD, wakeFD},
		orphanRoot:  func() int { return int(p.state.commandPID.Load()) },
		reportStuck: func(pids []int) { p.reportStuck(os.Stderr, pids) },
	}
	onParentDeath(&p.tree.attr, unix.SIGCONT) // if it is stopped then
	// In a group of its own the supervisor is not stopped with the job. An orphaned group would no
	// longer count as one then: Ctrl-Z would stop the command, and no shell would continue it.
	p.tree.attr.Setpgid = p.terminal == nil || !inOrphanedGroup()
	if err := p.tree.start(); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	closeAll([]int{connFD, textFD, wakeFD})
	return nil
}

// finishPreparation makes this process ready for a command.
func (p *parent) finishPreparation() {
	subscribe(p.signals, passedOn(p.terminal))
	// A closed standard error must not end the parent, and the command with it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	reserveThreads(parentThreads)
	go p.receive()
	go func() {
		// The writer hides that it is a file: Go splices into a file, and spins while a pipe is
		// full.
		_, _ = io.Copy(struct{ io.Writer }{os.Stderr}, p.text)
		close(p.written)
	}()
}

// receive handles the messages of the supervisor until that has ended. Since a process that is
// stopped does not answer, a command starts only while this one runs.
func (p *parent) receive() {
	var heldFDs []int
	for {
		messages, fds := p.conn.receive()
		if len(messages) == 0 {
			return
		}
		notify(p.stateChanged)
		if len(fds) > 0 || p.state.keepFilesOpen.Load() == 0 {
			go closeAll(heldFDs) // which may wait for a disk
			heldFDs = fds
		}
		if slices.Contains(messages, askMessage) {
			p.conn.sendMessage(startMessage)
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// subscribe makes signals arrive on c, except those that were ignored when the program started, as
// under nohup: the command must ignore them as well.
func subscribe(c chan<- os.Signal, signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

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
		case <-p.tree.exited:
			if code = int(p.state.result.Load()) - 1; code < 0 {
				// The supervisor's descendants are now children of this process.
				p.failure = cmp.Or(p.failure, ErrDied)
				p.tree.startKill()
			}
			empty = p.tree.empty
		case <-empty:
			return code
		}
	}
}

func (p *parent) forwardSignal(sig os.Signal) {
	number := sig.(syscall.Signal)
	p.got[number] = true
	message := byte(number)
	if p.terminal.sentByKeyboard(number) {
		message |= keyboardBit
	}
	p.conn.sendMessage(message)
}

// enforceDeadlines does what is due by the shared state, and schedules the timer for what comes
// next. It reads the state after the clock: what the supervisor has written until then counts,
// even if the parent has been stopped for a long time.
func (p *parent) enforceDeadlines() {
	at := bootNow()
	term, kill := p.state.deadlines()
	switch {
	case kill <= at:
		p.failure = cmp.Or(p.failure, ErrHung)
		p.tree.startKill()
		return
	case term <= at:
		p.failure = cmp.Or(p.failure, ErrHung)
		term = never
		p.state.setDeadlines(term, kill)
		p.tree.terminate()
	}
	p.timer.schedule(min(term, kill))
}

// behindFront is the handshake of a parent that a front has started.
const behindFront = "front"

// mayHaveOtherChildren reports whether this process has children from before it executed this
// program (those of a shell), or is process 1, which gets all orphans.
func mayHaveOtherChildren() bool {
	for pid := 1; pid > 0; {
		var err error
		if pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
			return os.Getpid() == 1
		}
	}
	return true
}

// runFront starts the parent as a process of its own, which has no other children, and stands for
// it: it passes signals on, reaps other children that have ended, and ends as the parent does. It
// waits for no other process. If the front is killed, the parent is, too, and the supervisor ends
// the command.
func runFront() (int, error) {
	self, err := programFile()
	if err != nil {
		return 0, err
	}
	tty := controllingTerminal()
	signals := make(chan os.Signal, 16)
	subscribe(signals, append(passedOn(tty), unix.SIGCHLD))
	runtime.LockOSThread() // the parent-death signal is sent when this thread ends
	attr := &syscall.SysProcAttr{Setpgid: tty == nil}
	onParentDeath(attr, unix.SIGKILL)
	parent, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), handshakeEnv+"="+behindFront),
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	if err != nil {
		return 0, fmt.Errorf("start the parent process: %w", err)
	}
	for {
		// Children are reaped here alone, so that no signal goes to another process.
		var status unix.WaitStatus
		for pid := 1; pid > 0; {
			if pid, _ = unix.Wait4(-1, &status, unix.WNOHANG, nil); pid == parent {
				end := endOf(status)
				if end.signal != 0 {
					EndBy(end.signal)
				}
				return end.code, nil
			}
		}
		if sig := (<-signals).(syscall.Signal); sig != unix.SIGCHLD && !tty.sentByKeyboard(sig) {
			_ = unix.Kill(parent, sig)
		}
	}
}

// A terminal is the controlling terminal of the session.
type terminal struct{ fd int }

// controllingTerminal returns nil if there is none, as under cron.
func controllingTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// sentByKeyboard reports whether a signal that this process got may have come from the keyboard,
// which sends it to the whole foreground group.
func (t *terminal) sentByKeyboard(sig syscall.Signal) bool {
	if t == nil || sig != unix.SIGINT && sig != unix.SIGQUIT {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// inOrphanedGroup reports whether this process group is orphaned, as POSIX calls it: no shell of
// the session controls it, as when a container or ssh starts the program directly on a terminal.
// Ctrl-Z stops no process of such a group.
func inOrphanedGroup() bool {
	session, _ := unix.Getsid(0)
	for pid := unix.Getppid(); pid != 0; pid = parentOf(pid) {
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() {
			return err != nil
		}
	}
	return true
}
