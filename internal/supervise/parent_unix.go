//go:build linux || darwin

package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
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
	if given && !strings.HasPrefix(handshake, behindFront) {
		return runSupervisor(handshake, body, reportStuck)
	}
	runtime.LockOSThread() // Ctrl-Z reaches this thread, and the parent dies with that of the front
	switch {
	case given:
		setProcessName("parent")
		return runParent(os.Getppid(), handshake == behindFront+"true", reportStuck)
	case mayHaveOtherChildren():
		return runFront()
	}
	return runParent(os.Getpid(), setStopBlocked(true), reportStuck)
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
// before it receives startMessage. pid is the process that the user started, stopBlocked whether
// that had SIGTSTP blocked.
func runParent(pid int, stopBlocked bool, reportStuck func(w io.Writer, pids []int)) (int, error) {
	_ = os.Unsetenv(handshakeEnv)
	setStopBlocked(stopBlocked)
	runtime.UnlockOSThread() // a locked thread wakes slowly
	p := &parent{
		reportStuck:  reportStuck,
		terminal:     controllingTerminal(),
		signals:      make(chan os.Signal, 16),
		got:          map[syscall.Signal]bool{},
		stateChanged: make(chan struct{}, 1),
		written:      make(chan struct{}),
	}
	subscribe(p.signals, stopSignals)
	if err := p.startSupervisor(pid, stopBlocked); err != nil {
		return 0, err
	}
	p.finishPreparation()
	code := p.eventLoop()
	// Standard error may have no reader. A signal that comes from here on ends this process at
	// once, one that has come before ends it after a second, and may come again: a front passes on
	// Ctrl-C, which the terminal has already sent to this process.
	for sig := range p.got {
		signal.Notify(make(chan os.Signal, 1), sig)
	}
	signal.Stop(p.signals)
	for len(p.signals) > 0 {
		p.got[(<-p.signals).(syscall.Signal)] = true
	}
	var stop syscall.Signal
	for sig := range p.got {
		if slices.Contains(stopSignals, os.Signal(sig)) {
			stop = sig
			time.AfterFunc(time.Second, func() { EndBy(sig) })
		}
	}
	<-p.written
	if code < 0 {
		// The signal may have killed a supervisor that did not handle it yet.
		if stop != 0 && p.state.keepFilesOpen.Load() == 0 {
			EndBy(stop)
		}
		return code, p.failure
	}
	if sig := syscall.Signal(p.state.endSignal.Load()); p.got[sig] && code == 128+int(sig) {
		EndBy(sig)
	}
	return code, nil
}

// startSupervisor starts the supervisor.
func (p *parent) startSupervisor(pid int, stopBlocked bool) (err error) {
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
		if commandGroup = unix.Getpgrp(); commandGroup == 0 {
			return errors.New("the command cannot join the job of a shell in another PID namespace; try: setsid -w, script, or a shell in this one")
		}
	}
	handshake := fmt.Sprintf(handshakeFormat, pid, connFD, textFD, stateFD, wakeFD, commandGroup, stopBlocked)
	p.tree = &processTree{
		path:        self,
		args:        os.Args,
		env:         append(os.Environ(), handshakeEnv+"="+handshake),
		inheritFDs:  []int{connFD, textFD, stateFD, wakeFD},
		stopBlocked: true,
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
		case end := <-p.tree.exited:
			if code = int(p.state.result.Load()) - 1; code < 0 {
				p.got[end.signal] = true
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
	if slices.Contains(stopSignals, sig) {
		p.tree.signalRoot(unix.SIGCONT, false) // a supervisor that is stopped ends nothing
	}
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
		p.state.parentActed.Store(1)
		p.state.setDeadlines(term, kill)
		p.tree.terminate()
	}
	p.timer.schedule(min(term, kill))
}

// behindFront begins the handshake of a parent that a front has started. Whether SIGTSTP was
// blocked follows.
const behindFront = "front,"

// mayHaveOtherChildren reports whether this process has children of any kind from before it
// executed this program (those of a shell), or is process 1, which gets all orphans.
func mayHaveOtherChildren() bool {
	for pid := 1; pid > 0; {
		var err error
		if pid, err = unix.Wait4(-1, nil, unix.WNOHANG|waitAll, nil); err == unix.ECHILD {
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
	attr := &syscall.SysProcAttr{Setpgid: tty == nil}
	onParentDeath(attr, unix.SIGKILL)
	stopBlocked := setStopBlocked(true)
	parent, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), handshakeEnv+"="+behindFront+fmt.Sprint(stopBlocked)),
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	setStopBlocked(stopBlocked)
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
		if sig := (<-signals).(syscall.Signal); sig != unix.SIGCHLD {
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
	pid := unix.Getppid()
	for ; pid > 0; pid = parentOf(pid) {
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() {
			return err != nil
		}
	}
	return pid == 0 // else a process is hidden: a shell may be
}
