//go:build linux || darwin

package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The signals that are passed on to the command.
var (
	// deadly ones also end the wait for the lease.
	deadly = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

	harmless = []os.Signal{unix.SIGUSR1, unix.SIGUSR2}

	// offScreen ones are left alone where there is a terminal, which delivers
	// them to the command itself.
	offScreen = []os.Signal{unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}
)

// attending is sent, as if it were a signal, when the front is ready to pass on
// signals, and when the keeper should look at the board.
const attending = 0

// fromKeyboard marks a signal that the front got while it was in the foreground.
const fromKeyboard = 0x80

// Run runs body in a process of its own, the keeper, and watches over it. It is
// to be called once, by a program that gets to this call again when it is
// started with the same arguments: in the process that the user started Run
// returns the exit code that body returned in the keeper.
//
// An error means that the keeper could not be started or did not end in good
// order; the exit code means nothing then. In the latter case, [ErrDied] or
// [ErrHung], nothing is left of its command.
func Run(body func(*Keeper) int) (int, error) {
	if summons, ok := os.LookupEnv(summonsName); ok {
		return keep(summons, body)
	}
	return newFront()
}

// A front is the process that the user started.
type front struct {
	tree  *tree
	link  *link
	board *board
	tty   *terminal
	alarm *alarm

	signals chan os.Signal

	// look asks for a look at the board; relayed is closed when the keeper has
	// nothing more to say.
	look    chan struct{}
	relayed chan struct{}

	failure error
}

// newFront starts the keeper as soon as nothing that the user may press can end
// us: what else we have to do until we can watch over it is done while it
// starts. The keeper starts no command before we say that we are there.
func newFront() (int, error) {
	f := &front{
		tty:     controllingTerminal(),
		signals: make(chan os.Signal, 16),
		look:    make(chan struct{}, 1),
		relayed: make(chan struct{}),
	}
	f.listen(deadly)
	if err := f.start(); err != nil {
		return 0, err
	}
	f.attend()
	return f.watch(), f.failure
}

// start starts the keeper.
func (f *front) start() (err error) {
	if f.alarm, err = newAlarm(); err != nil {
		return err
	}
	var link, board int
	if f.link, link, err = newLink(); err != nil {
		return err
	}
	if f.board, board, err = newBoard(); err != nil {
		return err
	}
	self, err := programFile()
	if err != nil {
		return err
	}
	s := seed{path: self, args: os.Args, keep: []int{link, board}, stray: f.command}
	s.env = append(os.Environ(), fmt.Sprintf("%s=%d,%d,%d,%d", summonsName, os.Getpid(), link, board, f.commandGroup()))
	// In a group of its own the keeper is not stopped with the job. But it would
	// count as one who looks after an orphaned group, which it does not.
	s.attr.Setpgid = f.tty == nil || !orphaned()
	if f.tree, err = plant(s); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	_ = unix.Close(link)
	go func() {
		f.link.relay(os.Stderr, func() { notify(f.look) })
		close(f.relayed)
	}()
	return nil
}

// listen has signals delivered to us, except those that we were told to ignore,
// as by nohup: the command is to ignore them as well.
func (f *front) listen(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(f.signals, sig)
		}
	}
}

// attend does what remains to be done before the command can be started.
func (f *front) attend() {
	f.listen(harmless)
	if f.tty == nil {
		f.listen(offScreen)
	}
	// A closed standard error is no reason to die and to take the command along.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	_ = f.link.send([]byte{attending}) // fails only if there is no keeper any more
}

// commandGroup is the process group that the command is to join: ours where
// there is a terminal, so that job control sees one job; 0 for one of its own.
func (f *front) commandGroup() int {
	if f.tty == nil {
		return 0
	}
	return unix.Getpgrp()
}

func (f *front) command() int { return int(f.board.command.Load()) }

// watch returns the exit code when nothing is left of the tree.
func (f *front) watch() int {
	code := 0
	var empty <-chan struct{} // nil until the keeper has ended
	for {
		select {
		case sig := <-f.signals:
			f.forward(sig)
		case <-f.look:
			f.heed()
		case <-f.alarm.c:
			f.heed()
		case code = <-f.tree.exited:
			if f.board.done.Load() == 0 {
				// Its descendants are ours now.
				f.fail(ErrDied)
				f.tree.kill()
			}
			empty = f.tree.empty
		case <-empty:
			<-f.relayed
			return code
		}
	}
}

func (f *front) forward(sig os.Signal) {
	message := byte(sig.(syscall.Signal))
	if f.tty != nil && f.tty.foreground() {
		message |= fromKeyboard
	}
	// If it cannot be sent, the keeper is hung or gone, and that is seen to
	// elsewhere.
	_ = f.link.send([]byte{message})
}

// heed does what the board says is due, and sets the alarm for what comes next.
// The board is read after the clock: what the keeper has written until now
// counts, even if we have been stopped for a long time.
func (f *front) heed() {
	at := now()
	switch {
	case due(&f.board.kill) <= at:
		f.fail(ErrHung)
		f.tree.kill()
		return
	case due(&f.board.term) <= at:
		// If the keeper comes to after all, it is not to take the end of the
		// command for its own will.
		f.board.steppedIn.Store(1)
		f.board.term.Store(0)
		_ = f.link.send([]byte{attending})
		f.tree.terminate()
	}
	f.alarm.set(f.board.next())
}

// fail records why the keeper did not end in good order: the first reason.
func (f *front) fail(err error) {
	if f.failure == nil {
		f.failure = err
	}
}

// programFile is the program that is running now, even if its file has been
// replaced meanwhile.
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
