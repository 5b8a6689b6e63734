package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Margin is how long before the end of its lease a command gets SIGKILL. It must be long enough
// to notice that the lease ends, to find all processes of the command, and for the kernel to
// tear them down, on a machine that is overloaded. The supervisor has half of it; then the
// parent acts in its place.
const Margin = 500 * time.Millisecond

// Errors of [Run] and [Supervisor.Run].
var (
	// ErrDied means that the supervisor was killed or has crashed, and that the command was
	// killed for that reason.
	ErrDied = errors.New("the supervisor process has died")

	// ErrHung means that the supervisor was stopped or hung when the lease had to be renewed,
	// and that it was killed with the command.
	ErrHung = errors.New("the supervisor process did not answer in time")

	// ErrLate means that the command was not started, since the lease was at its end.
	ErrLate = errors.New("the lock was lost before the command could be started")

	// ErrAbandoned means that the process that the user started was killed.
	ErrAbandoned = errors.New("the parent process has died")
)

// An Interrupt is the error of a start that a signal has prevented.
type Interrupt struct{ Signal syscall.Signal }

func (i *Interrupt) Error() string { return fmt.Sprintf("interrupted (%v)", i.Signal) }

// Code returns the exit code that a shell reports for the signal.
func (i *Interrupt) Code() int { return 128 + int(i.Signal) }

// A Failure is the error of [Run] if the supervisor did not end in good order. It wraps
// [ErrDied] or [ErrHung].
type Failure struct {
	Err error

	// Lost is when the parent noticed the failure.
	Lost time.Time
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// A Lease is the right to let a command run. A holdfast.Lock is one.
type Lease interface {
	// Deadline is the moment until which the lease is certain. It moves with every renewal.
	Deadline() time.Time

	// Context ends when the lease is lost for good.
	Context() context.Context
}

// A Policy is what happens to a command that loses its lease.
type Policy uint8

const (
	// Kill sends SIGTERM, and SIGKILL so early that no process of the command is left when the
	// lease ends.
	Kill Policy = iota

	// Term sends SIGTERM only: the command may outlive its lease.
	Term

	// Ignore lets the command run on.
	Ignore
)

// A Command describes what to run.
type Command struct {
	// Path is the program file. Args are its arguments, beginning with the name of the program.
	// Env is its whole environment.
	Path string
	Args []string
	Env  []string

	// Hold are files that stay open until the last descendant of the command has ended,
	// whichever other process ends before: the descendants inherit them.
	Hold []*os.File

	// Pin are files that the parent keeps open until the last descendant has ended, even if the
	// supervisor is killed. The command does not inherit them.
	Pin []*os.File

	// OnLost is what happens when the lease ends.
	OnLost Policy

	// KillAfter is how long SIGTERM comes before SIGKILL.
	KillAfter time.Duration
}

// A Result describes how a command ended.
type Result struct {
	// Code is the exit code of the command as a shell reports it, 128+n if signal n has killed
	// it.
	Code int

	// Lost is when the lease was lost, or came so near its end that the command had to be
	// stopped. It is zero if neither happened.
	Lost time.Time

	// Stopped reports that the command had not ended by itself by then, and was sent a signal
	// to end.
	Stopped bool

	// Signal is the last signal that requests an end and was passed on to the command, 0 if
	// there was none.
	Signal syscall.Signal

	// Abandoned reports that the command was killed because the parent had died.
	Abandoned bool
}

// A Supervisor holds a lease and runs a command under it. The body of [Run] gets one.
type Supervisor struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	parent *parentHandle

	// ready is done when the parent passes signals on, and this process survives them.
	ready sync.WaitGroup

	mu       sync.Mutex
	running  bool
	lastStop *Interrupt // the last signal that requests an end

	signals    chan forwardedSignal
	renewed    chan struct{}
	parentGone chan struct{}
}

// A forwardedSignal is a signal that the parent got and passes on.
type forwardedSignal struct {
	syscall.Signal

	// fromKeyboard means that the signal may have come from the keyboard of the terminal, which
	// sends it to the whole foreground group.
	fromKeyboard bool
}

func newSupervisor(parent *parentHandle) *Supervisor {
	s := &Supervisor{
		parent:     parent,
		signals:    make(chan forwardedSignal, 16),
		renewed:    make(chan struct{}, 1),
		parentGone: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Context ends when it is no longer useful to wait for the lease. Its cause is an [*Interrupt]
// or [ErrAbandoned].
func (s *Supervisor) Context() context.Context { return s.ctx }

// Parent returns the process id of the process that the user has started.
func (s *Supervisor) Parent() int { return s.parent.pid }

// Renewed reports that the deadline of the lease has moved. Without a call, the supervisor
// notices that only when the old deadline has come near.
func (s *Supervisor) Renewed() { notify(s.renewed) }

// Run runs a command under a lease, and returns when the command and all its descendants are
// dead. To ensure that, it waits for them no longer than the lease lasts: see [Command].
// Processes that the command leaves behind when it ends get a moment to end as well, then
// SIGTERM, then SIGKILL.
//
// An error means that the command was not started. It is the cause of the context's end,
// [ErrLate], or an error of the operating system.
//
// Run may be called again when it has returned, with the same files to hold. If a signal has
// requested the end of the command meanwhile, the supervisor's context has ended: the sender of
// the signal does not want another command.
func (s *Supervisor) Run(cmd *Command, lease Lease) (result Result, err error) {
	timer, err := newBootTimer()
	if err != nil {
		return Result{}, err
	}
	defer timer.close()
	if err := s.beginCommand(); err != nil {
		return Result{}, err
	}
	defer s.endCommand()
	defer func() { result.Signal = s.stopSignal() }()
	w := newWatchdog(s, cmd, lease, timer)
	// The parent has the deadlines of the command before the command is started.
	defer s.parent.clearDeadlines()
	if !w.reschedule() {
		return Result{}, ErrLate
	}
	if w.tree, err = s.parent.startCommand(s, cmd); err != nil {
		return Result{}, err
	}
	return w.eventLoop(), nil
}

// beginCommand directs signals to the command from now on. It fails if one has come already.
func (s *Supervisor) beginCommand() error {
	s.ready.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.running = true
	return nil
}

// endCommand directs signals to the wait for the next lease.
func (s *Supervisor) endCommand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	for len(s.signals) > 0 {
		<-s.signals // too late for the command
	}
	if s.lastStop != nil {
		s.cancel(s.lastStop)
	}
}

// stopSignal returns the last signal that requested an end, 0 if there was none.
func (s *Supervisor) stopSignal() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastStop == nil {
		return 0
	}
	return s.lastStop.Signal
}

// handleSignal passes a signal on to the command if there is one. Otherwise it ends the wait
// for the lease if the signal requests that.
func (s *Supervisor) handleSignal(sig forwardedSignal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isStopSignal(sig.Signal) {
		s.lastStop = &Interrupt{sig.Signal}
	}
	if !s.running {
		if s.lastStop != nil {
			s.cancel(s.lastStop)
		}
		return
	}
	select {
	case s.signals <- sig:
	default: // as the kernel does with a signal that is already pending
	}
}

func isStopSignal(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// onParentExit is called once, when the parent has ended.
func (s *Supervisor) onParentExit() {
	s.cancel(ErrAbandoned)
	close(s.parentGone)
}

// notify sends without blocking: a full channel already has a notification.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
