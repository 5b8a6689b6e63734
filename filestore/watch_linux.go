package filestore

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// canWatch: a Store is a driver.Watcher here.
const canWatch = true

var _ driver.Watcher = (*Store)(nil)

// A watcher tells waiters of one Store when to try again. It watches, by one
// inotify queue, the record of every name that is waited for, and the session of
// whoever holds it: the kernel closes that file when the process dies.
type watcher struct {
	mu      sync.Mutex
	queue   *inotify // nil until the first Watch, and after close
	closed  bool
	stop    context.CancelFunc
	running sync.WaitGroup

	names    map[string]*watchedName
	records  map[int32]*watchedName
	holders  map[string]*watchedSession
	sessions map[int32]*watchedSession
}

// A watchedName is a name that somebody waits for.
type watchedName struct {
	name    string
	signals map[chan struct{}]struct{}
	wd      int32           // of the record file, 0 if it is not watched
	holder  *watchedSession // nil if nobody holds the name, or it is not known
	token   int64           // the last one seen
	held    bool            // whether there was a hold then
}

// A watchedSession is a session that holds watched names.
type watchedSession struct {
	id    string
	wd    int32
	names map[*watchedName]struct{}
}

const (
	recordEvents = syscall.IN_MODIFY | goneEvents

	// goneEvents: the file has lost its name, or become another. Deleting a name
	// changes an attribute of its file, the number of its names.
	goneEvents = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
)

// Watch implements [driver.Watcher]. A watch is signalled also when the process
// of the holder dies. It returns an error that matches [driver.ErrUnsupported]
// if the kernel's limits of inotify are used up.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.admit(ctx, name); err != nil {
		return nil, err
	}
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.start(s); err != nil {
		return nil, err
	}
	n := w.names[name]
	if n == nil {
		n = &watchedName{name: name, signals: map[chan struct{}]struct{}{}}
		w.names[name] = n
	}
	if n.wd == 0 {
		if err := w.arm(ctx, s, n); err != nil {
			w.forget(n)
			return nil, err
		}
	}
	signal := make(chan struct{}, 1)
	n.signals[signal] = struct{}{}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(n.signals, signal)
		w.forget(n)
	})
	return signal, nil
}

// start opens the queue, if that was not done before.
func (w *watcher) start(s *Store) error {
	if w.closed {
		return driver.ErrClosed
	}
	if w.queue != nil {
		return nil
	}
	queue, err := newInotify()
	if err != nil {
		return noWatch(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.queue, w.stop = queue, stop
	w.names = map[string]*watchedName{}
	w.records = map[int32]*watchedName{}
	w.holders = map[string]*watchedSession{}
	w.sessions = map[int32]*watchedSession{}
	w.running.Go(func() { w.run(ctx, s, queue) })
	return nil
}

func noWatch(err error) error {
	return fmt.Errorf("%w: no room for a watch (see fs.inotify in sysctl): %w", driver.ErrUnsupported, err)
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.queue != nil {
		w.stop()
		w.queue.file.Close()
		w.queue = nil
	}
	w.mu.Unlock()
	w.running.Wait()
}

// run deals with events until the queue is closed.
func (w *watcher) run(ctx context.Context, s *Store, queue *inotify) {
	buf := make([]byte, 16<<10)
	for {
		events, err := queue.read(buf)
		if err != nil {
			return
		}
		for _, e := range events {
			w.handle(ctx, s, e)
		}
	}
}

func (w *watcher) handle(ctx context.Context, s *Store, e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	if e.mask&syscall.IN_Q_OVERFLOW != 0 {
		for _, n := range w.names {
			w.rearm(ctx, s, n)
		}
		return
	}
	if n := w.records[e.wd]; n != nil {
		if e.mask&^syscall.IN_MODIFY != 0 {
			w.rearm(ctx, s, n)
		} else if w.look(s, n) {
			n.signal()
		}
	}
	if h := w.sessions[e.wd]; h != nil && e.mask&syscall.IN_CLOSE_WRITE != 0 {
		w.running.Go(func() { w.awaitDeath(ctx, s, h) })
	}
}

// awaitDeath signals those who wait for a session whose file was closed. The
// kernel says so shortly before it unlocks the file, so that whoever tried at
// once could find the session alive.
func (w *watcher) awaitDeath(ctx context.Context, s *Store, h *watchedSession) {
	const first, last, patience = 10 * time.Microsecond, time.Millisecond, time.Second
	began := s.host.uptime()
	for delay := first; !s.isDead(h.id); delay = min(2*delay, last) {
		if s.host.uptime()-began > patience || pause(ctx, delay) != nil {
			return // Not closed by its owner, or closed properly.
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range h.names {
		n.signal()
	}
}

// arm watches the record of a name, which it creates if need be, and what it
// finds there.
func (w *watcher) arm(ctx context.Context, s *Store, n *watchedName) error {
	path := s.recordPath(n.name)
	f, err := s.openOrCreate(ctx, path)
	if err != nil {
		return notApplied(fault("open", path, err))
	}
	// The path may be another file's by now. This one's is not.
	wd, err := w.queue.add(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), recordEvents)
	f.Close()
	if err != nil {
		return noWatch(err)
	}
	n.wd = wd
	w.records[wd] = n
	w.look(s, n)
	return nil
}

// rearm watches a name whose file may be another now, and signals.
func (w *watcher) rearm(ctx context.Context, s *Store, n *watchedName) {
	old := n.wd
	delete(w.records, old)
	n.wd = 0
	_ = w.arm(ctx, s, n) // Waiters try again all the same; a later Watch arms it.
	if old != n.wd {
		w.queue.remove(old)
	}
	n.signal()
}

// look reads the record of n to learn whose death to watch for, and reports
// whether those who wait for n should look for themselves. They need not if the
// hold that they know of was merely renewed, or if they were told that the name
// was free and now somebody has it.
func (w *watcher) look(s *Store, n *watchedName) bool {
	rec, err := s.peek(n.name)
	held := err == nil && rec.State == stateHeld && s.inTheWay(&rec)
	renewed := n.held && rec.Token == n.token
	taken := !n.held && rec.After == n.token
	n.held, n.token = held, rec.Token
	if !held {
		w.setHolder(s, n, "")
		return true
	}
	w.setHolder(s, n, rec.Session)
	return !renewed && !taken || s.isDead(rec.Session) // It may have died before it was watched.
}

// peek takes a glance at the record of a name. If that is just being written,
// there is another event to come, and another look.
func (s *Store) peek(name string) (record, error) {
	f, err := os.OpenFile(s.recordPath(name), os.O_RDONLY|careful, 0)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	return glance(f)
}
