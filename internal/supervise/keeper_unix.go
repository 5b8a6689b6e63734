//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// summonsName is the environment variable that makes a process a keeper.
const summonsName = "HOLDFAST_KEEPER"

// A lifeline ties a keeper to its front.
type lifeline struct {
	front int
	link  *link
	board *board

	// group is the process group that the command is to join, that of the
	// front; 0 is one of its own.
	group int

	// held: the front has got the files to hold.
	held bool
}

// keep is the life of a keeper.
func keep(summons string, body func(*Keeper) int) (int, error) {
	_ = os.Unsetenv(summonsName)
	line, err := grasp(summons)
	if err != nil {
		return 0, fmt.Errorf("%w; is %s set in the environment?", err, summonsName)
	}
	k := newKeeper(line)
	k.ready.Add(2)
	go k.listen()
	go func() {
		rename()
		turnDeaf()
		k.ready.Done()
	}()
	code := body(k)
	line.board.done.Store(1)
	return code, nil
}

// grasp opens what the front has handed down.
func grasp(summons string) (*lifeline, error) {
	var front, link, board, group int
	if _, err := fmt.Sscanf(summons, "%d,%d,%d,%d", &front, &link, &board, &group); err != nil {
		return nil, errors.New("cannot read what the front has handed down")
	}
	unix.CloseOnExec(link)
	unix.CloseOnExec(board)
	line := &lifeline{front: front, group: group}
	var err error
	if line.link, err = openLink(link); err != nil {
		return nil, err
	}
	if line.board, err = mapBoard(board); err != nil {
		return nil, err
	}
	return line, unix.Close(board)
}

// turnDeaf makes a keeper survive the signals that may be sent to every process
// of a service or a session at once. They are the front's to pass on; a keeper
// that died of one would take the command with it. They are not set to be
// ignored, because the command would inherit that.
func turnDeaf() {
	nobody := make(chan os.Signal, 1)
	for _, sig := range slices.Concat(deadly, harmless) {
		if !signal.Ignored(sig) {
			signal.Notify(nobody, sig)
		}
	}
}

// listen takes the signals that the front passes on, until it has ended.
func (k *Keeper) listen() {
	attended := sync.OnceFunc(k.ready.Done)
	defer attended()
	data := make([]byte, 64)
	for {
		n, err := k.line.link.receive(data)
		if n == 0 || err != nil {
			signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
			k.abandon()
			return
		}
		for _, b := range data[:n] {
			if b == attending {
				attended()
				k.Renewed()
				continue
			}
			k.interrupt(passedSignal{syscall.Signal(b &^ fromKeyboard), b&fromKeyboard != 0})
		}
	}
}

// Write passes text on to the front, which writes it to its standard error: a
// keeper is in the background of a terminal and might be stopped for writing to
// it. What finds no room, because the front itself is stopped, is dropped. Once
// the front has ended the text is written directly.
func (k *Keeper) Write(text []byte) (int, error) {
	err := k.line.link.send(text)
	if err == nil || errors.Is(err, unix.EAGAIN) {
		return len(text), nil
	}
	return os.Stderr.Write(text)
}

// plant starts the command.
func (l *lifeline) plant(cmd *Command) (*tree, error) {
	s := seed{path: cmd.Path, args: cmd.Args, env: cmd.Env}
	for _, f := range cmd.Hold {
		fd, err := descriptor(f)
		if err != nil {
			return nil, err
		}
		s.keep = append(s.keep, fd)
	}
	s.attr.Setpgid = true
	s.attr.Pgid = l.group
	dieWithParent(&s.attr)
	t, err := plant(s)
	if err != nil {
		return nil, err
	}
	l.board.command.Store(int64(t.root))
	// The front holds the files as well: should we be killed, it has to end the
	// descendants first. If it is gone it needs nothing.
	if !l.held {
		l.held = true
		_ = l.link.send([]byte{0}, s.keep...)
	}
	return t, nil
}

// descriptor returns the descriptor of a file without making it a blocking one.
func descriptor(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	number := -1
	err = raw.Control(func(fd uintptr) { number = int(fd) })
	return number, err
}

// plan tells the front what to do, and when, should it find that we have not.
func (l *lifeline) plan(term, kill instant) {
	before := l.board.next()
	post(&l.board.term, term)
	post(&l.board.kill, kill)
	if l.board.next() < before {
		_ = l.link.send([]byte{0})
	}
}

// overruled reports whether the front has found that we did not act.
func (l *lifeline) overruled() bool { return l.board.steppedIn.Load() == 1 }

// clear tells the front that there is nothing to watch over any more.
func (l *lifeline) clear() {
	l.plan(never, never)
	l.board.command.Store(0)
	l.board.steppedIn.Store(0)
}

// pass sends a signal to the command. A terminal has sent those of its keyboard
// itself where the command is in the group of the front; sent twice, the second
// would be taken for "at once" by many programs.
func (l *lifeline) pass(t *tree, sig passedSignal) {
	if t.reaped.Load() {
		return
	}
	switch {
	case l.group == 0:
		_ = unix.Kill(-t.root, sig.Signal)
	case sig.keyboard && (sig.Signal == unix.SIGINT || sig.Signal == unix.SIGQUIT):
	default:
		_ = unix.Kill(t.root, sig.Signal)
	}
}
