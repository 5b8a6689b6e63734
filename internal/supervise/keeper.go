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

// Margin is how long before the end of its lease a command gets SIGKILL. It must
// be time enough to notice that, to find all processes of the command, and for
// the kernel to tear them down, on a machine that is overloaded. Half of it is
// the keeper's; then the front steps in.
const Margin = 500 * time.Millisecond

// Errors of [Run] and [Keeper.Run].
var (
	// ErrDied means that the keeper was killed or has crashed, and that the
	// command was killed for it.
	ErrDied = errors.New("the process that keeps the lock has died")

	// ErrHung means that the keeper was stopped or hung when the lease had to be
	// renewed, and that it was killed with the command.
	ErrHung = errors.New("the process that keeps the lock did not answer in time")

	// ErrLate means that the command was not started, since the lease was at its
	// end.
	ErrLate = errors.New("the lock was lost before the command could be started")

	// ErrAbandoned means that the process that the user started was killed.
	ErrAbandoned = errors.New("the process in front has died")
)

// An Interrupt is the error of a start that a signal has prevented.
type Interrupt struct{ Signal syscall.Signal }

func (i *Interrupt) Error() string { return fmt.Sprintf("interrupted (%v)", i.Signal) }

// Code is the exit code that a shell reports for the signal.
func (i *Interrupt) Code() int { return 128 + int(i.Signal) }

// A Lease is the right to let a command run. A holdfast.Lock is one.
type Lease interface {
	// Deadline is the moment up to which the lease is certain. It moves with
	// every renewal.
	Deadline() time.Time

	// Context ends when the lease is lost for good.
	Context() context.Context
}

// A Policy is what becomes of a command that loses its lease.
type Policy uint8

const (
	// Kill sends SIGTERM, and SIGKILL so early that nothing is left of the
	// command when the lease ends.
	Kill Policy = iota

	// Term sends SIGTERM only: the command may outlive its lease.
	Term

	// Ignore lets the command run on.
	Ignore
)

// A Command is what to run.
type Command struct {
	// Path is the program file, Args its arguments with the name it goes by
	// first, Env its whole environment.
	Path string
	Args []string
	Env  []string

	// Hold are files that stay open until the last descendant of the command has
	// ended, whatever else dies: the descendants inherit them.
	Hold []*os.File

	// OnLost is what happens when the lease ends.
	OnLost Policy

	// KillAfter is how long SIGTERM comes before SIGKILL.
	KillAfter time.Duration
}

// A Result is how a command ended.
type Result struct {
	// Code is the exit code of the command as a shell reports it, 128+n if
	// signal n has killed it.
	Code int

	// Lost is when the lease was lost or came so near its end that the command
	// had to be stopped. It is zero if neither happened.
	Lost time.Time

	// Stopped reports that the command had not ended by itself by then, and was
	// told to.
	Stopped bool

	// Abandoned reports that the command was killed because the process in front
	// had died.
	Abandoned bool
}

// A Keeper holds a lease and runs a command under it. It is handed to the body
// of [Run].
type Keeper struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	line   *lifeline

	// ready is done when signals reach those whom they are to reach.
	ready sync.WaitGroup

	mu      sync.Mutex
	running bool
	passed  *Interrupt // the last signal that a command got and that asks for an end

	signals chan passedSignal
	renewed chan struct{}
	gone    chan struct{}
}

// A passedSignal is one that the front got and passes on.
type passedSignal struct {
	syscall.Signal

	// keyboard: it may have come from the keyboard of the terminal, which sends
	// it to the whole foreground group.
	keyboard bool
}

func newKeeper(line *lifeline) *Keeper {
	k := &Keeper{
		line:    line,
		signals: make(chan passedSignal, 16),
		renewed: make(chan struct{}, 1),
		gone:    make(chan struct{}),
	}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	return k
}

// Context ends when there is no use in waiting for the lease any more. Its cause
// is an [*Interrupt] or [ErrAbandoned].
func (k *Keeper) Context() context.Context { return k.ctx }

// Front is the process id of the process that the user has started.
func (k *Keeper) Front() int { return k.line.front }

// Renewed says that the deadline of the lease has moved. Without it that is
// noticed too, but only when the deadline had come near.
func (k *Keeper) Renewed() { notify(k.renewed) }

// Run runs a command under a lease, and returns when the command and all its
// descendants are dead. To make sure of that it does not wait for them longer
// than the lease lasts: see [Command]. What the command leaves behind when it
// ends gets a moment to end as well, then SIGTERM, then SIGKILL.
//
// An error means that the command was not started: the cause of the context's
// end, [ErrLate], or what the operating system says.
//
// Run may be called again when it has returned, with the same files to hold. If a
// signal has asked the command to end meanwhile, the keeper's context has ended:
// whoever sent it does not want another.
func (k *Keeper) Run(cmd *Command, lease Lease) (Result, error) {
	alarm, err := newAlarm()
	if err != nil {
		return Result{}, err
	}
	defer alarm.close()
	if err := k.begin(); err != nil {
		return Result{}, err
	}
	defer k.end()
	g := newGuard(k, cmd, lease, alarm)
	// The front knows how long the command may live before there is one.
	defer k.line.clear()
	if !g.plan() {
		return Result{}, ErrLate
	}
	if g.tree, err = k.line.plant(cmd); err != nil {
		return Result{}, err
	}
	return g.watch(), nil
}

// begin has signals go to the command from now on, unless one has come already.
func (k *Keeper) begin() error {
	k.ready.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	k.running = true
	return nil
}

// end has signals end the wait for the next lease.
func (k *Keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = false
	for len(k.signals) > 0 {
		<-k.signals // too late for the command
	}
	if k.passed != nil {
		k.cancel(k.passed)
	}
}

// interrupt passes a signal on to the command if there is one, and otherwise
// gives up the wait for the lease if that is what the signal asks for.
func (k *Keeper) interrupt(sig passedSignal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fatal(sig.Signal) {
		k.passed = &Interrupt{sig.Signal}
	}
	if !k.running {
		if k.passed != nil {
			k.cancel(k.passed)
		}
		return
	}
	select {
	case k.signals <- sig:
	default: // as the kernel does with a signal that is pending already
	}
}

func fatal(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// abandon is called once, when the front has ended.
func (k *Keeper) abandon() {
	k.cancel(ErrAbandoned)
	close(k.gone)
}

// notify leaves a note in a channel that has room for one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
