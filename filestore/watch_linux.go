package filestore

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"math/bits"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A watcher sends an Ask notice when a name that owners of one Store wait for may have become free.
// By one inotify queue it watches the record of the name, and the session of its holder: the kernel
// closes that file when the process dies.
//
// A release wakes every Store that watches the name, and one of them gets it. So only those that
// have a slot of the name watch it. The others read its record at intervals, and watch it as soon
// as they find a slot free.
type watcher struct {
	mu      sync.Mutex
	queue   *inotify // nil until the first watch, and after close
	closed  bool
	running sync.WaitGroup

	names           map[string]*watchedName
	recordsByWatch  map[int32]*watchedName
	sessionsByID    map[string]*watchedSession
	sessionsByWatch map[int32]*watchedSession

	slotFile *storeFile // the tokens file, with the slots of this Store; nil if it has none
	slots    int        // how many it has
}

// A watchedName is a name with waiters.
type watchedName struct {
	name    string
	owners  map[string]time.Time // until when each owner waits
	slot    int                  // or noSlot
	wd      int32                // watch of the record file, 0 if it is not watched
	holder  *watchedSession      // nil if the name is free, or its holder is not watched
	rec     record               // as it was read last, or zero if the name was free
	stamp   fileStamp            // of the file then; zero if it may have changed since
	timer   *time.Timer          // until the next examination without an event
	delayed bool                 // the timer was set by an event
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

// The slots of a name are bytes of the tokens file, far behind its end. A Store that waits for the
// name has one of them locked, of the lowest that are free, and moves on to lower ones later. So
// the number of its slot shows how many wait. The kernel unlocks the slot of a process that dies.
// The place of the slots follows from a hash of the name: two names may share them, and then wait
// as if they were one.
const (
	nameSlots    = 1 << 16
	watchedSlots = 16 // Stores with one of the first slots watch the name.
	noSlot       = -1 // The tokens file is missing, or has no such locks. The Store watches the name.

	// raceDelay is how much longer, at most, a watching Store waits after an event than the one
	// with the slot before. Most find the name taken again then, and make no attempt.
	raceDelay = 500 * time.Microsecond

	// slotPause is the greatest pause of a Store that does not watch, divided by its slot. So all
	// of them with slots of the same number of bits find a slot free, or the name, in that time.
	slotPause = 100 * time.Millisecond
)

// isWaiting reports whether an owner gets notices.
func (w *watcher) isWaiting(name, owner string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	return n != nil && time.Now().Before(n.owners[owner])
}

// addWaiter has notices sent to the owner of req, until Queue from now. It reports false if the
// Store is closed.
func (s *Store) addWaiter(ctx context.Context, req *driver.AcquireRequest) bool {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.names == nil {
		w.names = map[string]*watchedName{}
		w.recordsByWatch = map[int32]*watchedName{}
		w.sessionsByID = map[string]*watchedSession{}
		w.sessionsByWatch = map[int32]*watchedSession{}
	}
	n := w.names[req.Name]
	if n == nil {
		n = &watchedName{name: req.Name, owners: map[string]time.Time{}, slot: nameSlots}
		w.names[req.Name] = n
	}
	if until := time.Now().Add(req.Queue); until.After(n.owners[req.Owner]) {
		n.owners[req.Owner] = until
	}
	if n.timer == nil || n.wd == 0 && n.slot < watchedSlots {
		w.watchRecord(ctx, s, n)
		w.refresh(s, n)
		w.schedule(s, n)
	}
	return true
}

// removeWaiter ends the notices for an owner.
func (s *Store) removeWaiter(name, owner string) {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.names[name]; n != nil {
		delete(n.owners, owner)
		w.removeIfUnused(n)
	}
}

// removeIfUnused removes the watches and the slot of n if nothing waits for it any more. It reports
// whether it has.
func (w *watcher) removeIfUnused(n *watchedName) bool {
	if len(n.owners) > 0 {
		return false
	}
	delete(w.names, n.name)
	n.timer.Stop()
	w.dropHolderSession(n)
	w.unwatchRecord(n)
	w.moveToSlot(n, noSlot)
	return true
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	for _, n := range w.names {
		clear(n.owners)
		w.removeIfUnused(n)
	}
	if w.queue != nil {
		w.queue.file.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// watchRecord watches the record of a name, which it creates if necessary. It does so if it gets a
// slot for that, and the kernel has room for a watch. Else the name is examined at intervals. The
// caller then refreshes n.
func (w *watcher) watchRecord(ctx context.Context, s *Store, n *watchedName) {
	if n.wd != 0 {
		return
	}
	if w.takeSlot(ctx, s, n); n.slot >= watchedSlots {
		return
	}
	if w.queue == nil {
		queue, err := newInotify()
		if err != nil {
			return
		}
		w.queue = queue
		w.running.Go(func() { w.eventLoop(s, queue) })
	}
	f, err := s.openOrCreate(ctx, locksFolder, fileName(n.name))
	if err != nil {
		return
	}
	defer f.Close()
	wd, err := w.queue.addWatch(f.File, recordEvents)
	if err != nil {
		return
	}
	n.wd = wd
	w.recordsByWatch[wd] = n
}

// unwatchRecord ends the watch of the record of n.
func (w *watcher) unwatchRecord(n *watchedName) {
	if n.wd != 0 {
		delete(w.recordsByWatch, n.wd)
		w.queue.removeWatch(n.wd)
		n.wd = 0
	}
}

// takeSlot gives n a lower slot if one is free. It tries all that are watched, and a few of those
// in each range above up to its own.
func (w *watcher) takeSlot(ctx context.Context, s *Store, n *watchedName) {
	if n.slot <= 0 {
		return
	}
	if w.slotFile == nil {
		f, err := s.openExisting(ctx, "", tokensFile, os.O_RDWR)
		if err == nil {
			if err = f.read(); err != nil { // Another user may have put another file there.
				f.Close()
			}
		}
		if err != nil {
			n.slot = noSlot
			return
		}
		w.slotFile = f
	}
	for low, size, tries := 0, watchedSlots, watchedSlots; low < n.slot; low, size, tries = low+size, low+size, 4 {
		start := 0
		if low > 0 {
			if low+size > n.slot {
				return
			}
			start = rand.IntN(size)
		}
		for i := range min(tries, n.slot) {
			slot := low + (start+i)%size
			err := setSlot(w.slotFile, n.name, slot, unix.F_WRLCK)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
				continue
			}
			if err != nil {
				slot = noSlot
			}
			w.moveToSlot(n, slot)
			return
		}
	}
}

// moveToSlot records that n has another slot, which is locked or noSlot, and unlocks the one that
// it has had.
func (w *watcher) moveToSlot(n *watchedName, slot int) {
	if slot >= 0 {
		w.slots++
	}
	if n.slot >= 0 && n.slot < nameSlots {
		_ = setSlot(w.slotFile, n.name, n.slot, unix.F_UNLCK)
		w.slots--
	}
	n.slot = slot
	if w.slots == 0 && w.slotFile != nil {
		w.slotFile.Close()
		w.slotFile = nil
	}
}

// setSlot locks a slot, or unlocks it.
func setSlot(f *storeFile, name string, slot int, how int16) error {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	lock := unix.Flock_t{Type: how, Start: int64(hash.Sum64()>>1)&^(nameSlots-1) + int64(slot), Len: 1}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
}

// eventLoop handles events until the queue is closed.
func (w *watcher) eventLoop(s *Store, queue *inotify) {
	buf := make([]byte, 16<<10)
	for {
		events, err := queue.readEvents(buf)
		if err != nil {
			return
		}
		for _, e := range events {
			w.handleEvent(s, e)
		}
	}
}

func (w *watcher) handleEvent(s *Store, e inotifyEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if e.mask&syscall.IN_Q_OVERFLOW != 0 {
		for _, n := range w.names {
			w.rewatchRecord(s, n)
		}
		return
	}
	if n := w.recordsByWatch[e.wd]; n != nil {
		if e.mask&^syscall.IN_MODIFY != 0 {
			w.rewatchRecord(s, n)
		} else if most := time.Duration(n.slot) * raceDelay; most <= 0 {
			w.examine(s, n)
		} else if !n.delayed {
			n.delayed = true
			n.timer.Reset(rand.N(most))
		}
	}
	if h := w.sessionsByWatch[e.wd]; h != nil && e.mask&syscall.IN_CLOSE_WRITE != 0 {
		w.running.Go(func() { w.awaitSessionDeath(s, h) })
	}
}

// awaitSessionDeath notifies the waiters of a session after its file was closed. The kernel reports
// the close shortly before it unlocks the file, so an attempt made at once could find the session
// alive.
func (w *watcher) awaitSessionDeath(s *Store, h *watchedSession) {
	const first, last, timeout = 10 * time.Microsecond, time.Millisecond, time.Second
	began := s.host.uptime()
	for delay := first; !s.isSessionDead(h.id); delay = min(2*delay, last) {
		if s.host.uptime()-began > timeout || retry.Sleep(s.lifetime, delay) != nil {
			return // Not closed by its owner, or closed properly.
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range h.names {
		s.notify(n.name)
	}
}

// rewatchRecord watches a name again after its file may have been replaced, and notifies.
func (w *watcher) rewatchRecord(s *Store, n *watchedName) {
	old := n.wd
	delete(w.recordsByWatch, old)
	n.wd = 0
	w.watchRecord(s.lifetime, s, n)
	w.refresh(s, n)
	if old != 0 && old != n.wd {
		w.queue.removeWatch(old)
	}
	s.notify(n.name)
	w.schedule(s, n)
}

// examine reads the record of n, and notifies its waiters if the hold has ended.
func (w *watcher) examine(s *Store, n *watchedName) {
	if w.refresh(s, n) {
		s.notify(n.name)
		w.takeSlot(s.lifetime, s, n) // Those in lower slots may have gone.
	}
	w.schedule(s, n)
}

// refresh reads the record of n, watches the session of its holder, and reports whether the name is
// free, or kept since then.
func (w *watcher) refresh(s *Store, n *watchedName) bool {
	rec, err := s.peekName(n.name)
	if err != nil {
		rec = record{}
	}
	if n.wd != 0 {
		w.setHolderSession(s, n, rec.Session)
	}
	if !s.isHeld(&rec) { // The session may have died before it was watched.
		rec = record{}
	}
	before := n.rec.State
	n.rec = rec
	return rec.State == "" || rec.State == stateKept && before != stateKept
}

// schedule sets the timer of n: to the end of the hold if the name is watched, to the next
// examination if it is not, and to the end of the waiting at the latest.
func (w *watcher) schedule(s *Store, n *watchedName) {
	if n.delayed {
		return
	}
	var end time.Time
	for _, until := range n.owners {
		if until.After(end) {
			end = until
		}
	}
	delay := time.Until(end)
	if n.wd == 0 {
		delay = min(delay, retry.HalfJitter(n.examinationPause(s)))
	} else if n.rec.Expires > 0 {
		delay = min(delay, n.rec.Expires-s.host.uptime()+time.Millisecond+rand.N(4*time.Millisecond))
	}
	if n.timer == nil {
		n.timer = time.AfterFunc(delay, func() { w.onTimer(s, n) })
	} else {
		n.timer.Reset(delay)
	}
}

func (w *watcher) onTimer(s *Store, n *watchedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[n.name] != n {
		return
	}
	n.delayed = false
	now := time.Now()
	for owner, until := range n.owners {
		if !now.Before(until) {
			delete(n.owners, owner)
		}
	}
	if w.removeIfUnused(n) {
		return
	}
	if n.wd == 0 && n.slot >= watchedSlots {
		stamp := s.recordStamp(n.name)
		if stamp == n.stamp && stamp.mtime != 0 && rand.IntN(16) > 0 {
			w.schedule(s, n)
			return
		}
		n.stamp = stamp
	}
	w.watchRecord(s.lifetime, s, n)
	w.examine(s, n)
}

// A fileStamp changes when a file is written or replaced.
type fileStamp struct {
	ino         uint64
	size, mtime int64
}

// recordStamp returns zero for a file that was written so recently that the next change may have
// the same time.
func (s *Store) recordStamp(name string) fileStamp {
	const granularity = 20 * time.Millisecond
	f, err := s.retainFolder(false)
	if err != nil {
		return fileStamp{}
	}
	defer f.release()
	var stat unix.Stat_t
	if unix.Fstatat(f.locks.fd, fileName(name), &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return fileStamp{}
	}
	stamp := fileStamp{stat.Ino, stat.Size, stat.Mtim.Nano()}
	if time.Since(time.Unix(0, stamp.mtime)) < granularity {
		return fileStamp{}
	}
	return stamp
}

// examinationPause returns the greatest pause before the record of n, which is not watched, is read
// again. It grows with the age of the hold, since other holds are likely to last as long. For a
// Store that has found no slot to watch from, it grows with the number of those before it as well.
func (n *watchedName) examinationPause(s *Store) time.Duration {
	const least, most = 2 * time.Millisecond, 250 * time.Millisecond
	age := least
	if since, err := time.Parse(time.RFC3339Nano, n.rec.Since); err == nil {
		age = max(s.host.wall().Sub(since), least)
	}
	if n.slot < watchedSlots {
		if n.rec.State == "" {
			return most // It was notified.
		}
		return min(age, most)
	}
	return min(age, slotPause) << bits.Len(uint(n.slot))
}

// peekName peeks at the record of a name. If the record is just being written, another event
// follows, and another refresh.
func (s *Store) peekName(name string) (record, error) {
	f, err := s.openExisting(context.Background(), locksFolder, fileName(name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	return peek(f.File)
}
