package filestore

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// canWatch is true: a Store is a driver.Watcher on Linux.
const canWatch = true

var _ driver.Watcher = (*Store)(nil)

// A watcher signals the waiters of one Store when to try again. By one inotify queue it watches the
// record of every name that is waited for, and the session of its holder: the kernel closes that
// file when the process dies.
type watcher struct {
	mu      sync.Mutex
	queue   *inotify // nil until the first Watch, and after close
	closed  bool
	stop    context.CancelFunc
	running sync.WaitGroup

	names           map[string]*watchedName
	recordsByWatch  map[int32]*watchedName
	sessionsByID    map[string]*watchedSession
	sessionsByWatch map[int32]*watchedSession
}

// A watchedName is a name with waiters.
type watchedName struct {
	name    string
	waiters map[chan struct{}]struct{}
	wd      int32           // watch of the record file, 0 if it is not watched
	holder  *watchedSession // nil if the name is free, or its holder is not known
	token   int64           // the last token read
	held    bool            // whether there was a hold then
}

// A watchedSession is a session that holds watched names.
type watchedSession struct {
	id    string
	wd    int32
	names map[*watchedName]struct{}
}

const (
	recordEvents = syscall.IN_MODIFY | replacedEvents

	// replacedEvents mean that the file has lost its name, or become another. Deleting a name
	// changes an attribute of its file, the number of its names.
	replacedEvents = syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
)

// Watch implements [driver.Watcher]. A watch is signaled also when the process of the holder dies.
// Watch returns an error that matches [driver.ErrUnsupported] if the kernel's limits of inotify are
// used up.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	return s.detached.(driver.Watcher).Watch(ctx, name)
}

// Watch implements [driver.Watcher].
func (s direct) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.checkRequest(ctx, name); err != nil {
		return nil, err
	}
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ensureStarted(s.Store); err != nil {
		return nil, err
	}
	n := w.names[name]
	if n == nil {
		n = &watchedName{name: name, waiters: map[chan struct{}]struct{}{}}
		w.names[name] = n
	}
	if n.wd == 0 {
		if err := w.watchRecord(ctx, s.Store, n); err != nil {
			w.removeIfUnused(n)
			return nil, err
		}
	}
	signal := make(chan struct{}, 1)
	n.waiters[signal] = struct{}{}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(n.waiters, signal)
		w.removeIfUnused(n)
	})
	return signal, nil
}

// ensureStarted opens the queue at the first watch.
func (w *watcher) ensureStarted(s *Store) error {
	if w.closed {
		return driver.ErrClosed
	}
	if w.queue != nil {
		return nil
	}
	queue, err := newInotify()
	if err != nil {
		return watchLimitErr(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.queue, w.stop = queue, stop
	w.names = map[string]*watchedName{}
	w.recordsByWatch = map[int32]*watchedName{}
	w.sessionsByID = map[string]*watchedSession{}
	w.sessionsByWatch = map[int32]*watchedSession{}
	w.running.Go(func() { w.eventLoop(ctx, s, queue) })
	return nil
}

func watchLimitErr(err error) error {
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

// eventLoop handles events until the queue is closed.
func (w *watcher) eventLoop(ctx context.Context, s *Store, queue *inotify) {
	buf := make([]byte, 16<<10)
	for {
		events, err := queue.readEvents(buf)
		if err != nil {
			return
		}
		for _, e := range events {
			w.handleEvent(ctx, s, e)
		}
	}
}

func (w *watcher) handleEvent(ctx context.Context, s *Store, e inotifyEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	if e.mask&syscall.IN_Q_OVERFLOW != 0 {
		for _, n := range w.names {
			w.rewatchRecord(ctx, s, n)
		}
		return
	}
	if n := w.recordsByWatch[e.wd]; n != nil {
		if e.mask&^syscall.IN_MODIFY != 0 {
			w.rewatchRecord(ctx, s, n)
		} else if w.refresh(s, n) {
			n.signalAll()
		}
	}
	if h := w.sessionsByWatch[e.wd]; h != nil && e.mask&syscall.IN_CLOSE_WRITE != 0 {
		w.running.Go(func() { w.awaitSessionDeath(ctx, s, h) })
	}
}

// awaitSessionDeath signals the waiters of a session after its file was closed. The kernel reports
// the close shortly before it unlocks the file, so an attempt made at once could find the session
// alive.
func (w *watcher) awaitSessionDeath(ctx context.Context, s *Store, h *watchedSession) {
	const first, last, timeout = 10 * time.Microsecond, time.Millisecond, time.Second
	began := s.host.uptime()
	for delay := first; !s.isSessionDead(h.id); delay = min(2*delay, last) {
		if s.host.uptime()-began > timeout || retry.Sleep(ctx, delay) != nil {
			return // Not closed by its owner, or closed properly.
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range h.names {
		n.signalAll()
	}
}

// watchRecord watches the record of a name, which it creates if necessary, and the session of the
// hold that it finds there.
func (w *watcher) watchRecord(ctx context.Context, s *Store, n *watchedName) error {
	f, err := s.openOrCreate(ctx, locksFolder, fileName(n.name))
	if err != nil {
		return err
	}
	wd, err := w.queue.addWatch(f.File, recordEvents)
	f.Close()
	if err != nil {
		return watchLimitErr(err)
	}
	n.wd = wd
	w.recordsByWatch[wd] = n
	w.refresh(s, n)
	return nil
}

// rewatchRecord watches a name again after its file may have been replaced, and signals.
func (w *watcher) rewatchRecord(ctx context.Context, s *Store, n *watchedName) {
	old := n.wd
	delete(w.recordsByWatch, old)
	n.wd = 0
	_ = w.watchRecord(ctx, s, n) // Waiters try again anyway; a later Watch watches the record again.
	if old != n.wd {
		w.queue.removeWatch(old)
	}
	n.signalAll()
}

// refresh reads the record of n, watches the session of its holder, and reports whether the waiters
// of n should try again. They need not if the hold that they know was merely renewed, or if they
// were signaled that the name was free and it is held again now.
func (w *watcher) refresh(s *Store, n *watchedName) bool {
	rec, err := s.peekName(n.name)
	held := err == nil && rec.State == stateHeld && s.isHeld(&rec)
	renewed := n.held && rec.lastToken() == n.token
	taken := !n.held && rec.After == n.token
	n.held, n.token = held, rec.lastToken()
	if !held {
		w.setHolderSession(s, n, "")
		return true
	}
	w.setHolderSession(s, n, rec.Session)
	return !renewed && !taken || s.isSessionDead(rec.Session) // It may have died before it was watched.
}

// peekName peeks at the record of a name. If the record is just being written, another event
// follows, and another refresh.
func (s *Store) peekName(name string) (record, error) {
	f, err := s.openExisting(context.Background(), locksFolder, fileName(name), os.O_RDONLY)
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	return peek(f.File)
}
