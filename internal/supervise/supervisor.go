package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	// and that the parent has ended the command in its place.
	ErrHung = errors.New("the supervisor process did not answer in time")

	// ErrLate means that the command was not started, since the lease was at its end.
	ErrLate = errors.New("the lock was lost before the command could be started")

	// ErrAbandoned means that the process that the user started was killed.
	ErrAbandoned = errors.New("the parent process has died")

	// ErrSuspended means that the command was not started, since the process that the user
	// started is stopped, by Ctrl-Z for instance.
	ErrSuspended = errors.New("the job is suspended")
)

// stopSignals request an end. They are passed on to the command, and end the wait for the lease.
var stopSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// An Interrupt is the error of a start that a signal has prevented.
type Interrupt struct{ Signal syscall.Signal }

func (i *Interrupt) Error() string { return fmt.Sprintf("interrupted (%v)", i.Signal) }

// Code returns the exit code that a shell reports for the signal.
func (i *Interrupt) Code() int { return 128 + int(i.Signal) }

// A rootEnd is how the first process of a command has ended.
type rootEnd struct {
	code   int            // as a shell reports it
	signal syscall.Signal // that has killed it, or 0
}

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

	// Stopped reports that the command was sent a signal to end, since the lease was lost, or
	// came near its end.
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

	mu       sync.Mutex
	tree     *processTree // the command, nil while there is none
	lastStop *Interrupt   // the last signal that requests an end

	mayStart chan struct{} // the parent runs, and agrees to the start of a command
}

func newSupervisor(parent *parentHandle) *Supervisor {
	s := &Supervisor{parent: parent, mayStart: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Context ends when it is no longer useful to wait for the lease. Its cause is an [*Interrupt]
// or [ErrAbandoned].
func (s *Supervisor) Context() context.Context { return s.ctx }

// Parent returns the process id of the process that the user has started.
func (s *Supervisor) Parent() int { return s.parent.pid }

// Run runs a command under a lease, and returns when the command and all its descendants are
// dead. It kills them before the lease ends, see [Command], and waits for those that cannot be
// killed. What the command leaves behind gets 200 ms to end as well, then SIGTERM, then SIGKILL.
//
// An error means that the command was not started. It is the cause of the context's end,
// [ErrLate], [ErrSuspended], or an error of the operating system.
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
	if err := s.askParent(); err != nil {
		return Result{}, err
	}
	w := &watchdog{supervisor: s, cmd: cmd, lease: lease, timer: timer, termAt: never, killAt: never}
	defer s.parent.clearDeadlines()
	if err := s.start(w); err != nil {
		return Result{}, err
	}
	result = w.eventLoop()
	result.Signal = s.endCommand()
	return result, nil
}

// start starts the command, to which signals go from then on, unless one has come already. The
// parent has the deadlines of the command before it is started.
func (s *Supervisor) start(w *watchdog) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if !w.reschedule() {
		return ErrLate
	}
	w.tree, err = s.parent.startCommand(s, w.cmd)
	s.tree = w.tree
	return err
}

// endCommand directs signals to the wait for the next lease. It returns the last signal that
// requested an end, 0 if there was none.
func (s *Supervisor) endCommand() syscall.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree = nil
	if s.lastStop == nil {
		return 0
	}
	s.cancel(s.lastStop)
	return s.lastStop.Signal
}

// parentPatience is how long a parent that is not suspended may take to agree to a start, on a
// machine that is overloaded.
const parentPatience = time.Second

// askParent asks the parent whether a command may start. A parent that is suspended does not
// answer.
func (s *Supervisor) askParent() error {
	patience, cancel := context.WithTimeoutCause(s.ctx, parentPatience, ErrSuspended)
	defer cancel()
	s.parent.ask(s)
	return s.awaitAnswer(patience)
}

// Resumed waits after [ErrSuspended] until the job is continued. An error is the cause of the end
// of [Supervisor.Context].
func (s *Supervisor) Resumed() error { return s.awaitAnswer(s.ctx) }

func (s *Supervisor) awaitAnswer(ctx context.Context) error {
	select {
	case <-s.mayStart:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handleSignal passes a signal on to the command if there is one. Otherwise it ends the wait
// for the lease if the signal requests that.
func (s *Supervisor) handleSignal(sig syscall.Signal, fromKeyboard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(stopSignals, os.Signal(sig)) {
		s.lastStop = &Interrupt{sig}
	}
	switch {
	case s.tree != nil:
		s.parent.forwardSignal(s.tree, sig, fromKeyboard)
	case s.lastStop != nil:
		s.parent.reportEnd(s.lastStop.Signal)
		s.cancel(s.lastStop)
	}
}

// notify sends without blocking: a full channel already has a notification.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
