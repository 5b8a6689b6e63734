package filestore

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A watcher sends an Ask notice when a name that owners of one Store wait for may have become free.
// It has one inotify queue, by which it watches the record of the name and the sessions of its
// holders. The kernel closes the file of a session when its process dies.
//
// A release wakes every Store that watches the name, and one of them gets it. A Store for which the
// kernel has no room reads the record at intervals.
type watcher struct {
	mu      sync.Mutex
	queue   *inotify    // nil until the first watch
	timer   *time.Timer // fires when a name is due; nil until there is one
	fires   time.Time   // when; zero if timer is not set
	closed  bool
	running sync.WaitGroup

	names           map[string]*watchedName
	recordsByWatch  map[int32]*watchedName
	sessionsByID    map[string]*watchedSession
	sessionsByWatch map[int32]*watchedSession
}

// A watchedName is a name with waiters.
type watchedName struct {
	name    string
	owners  map[string]*waitingOwner
	arrived int               // how many owners have waited
	wd      int32             // watch of the record file, 0 if it is not watched
	holders []*watchedSession // those of the holders that are watched
	rec     record            // as it was read last, or zero if the name was free; see summarize
	due     time.Time         // when it is examined without an event
	delayed bool              // due was set by an event

	// Only with shared or limited holds or waiters:
	tolerant  bool      // its owners get notices one by one
	recorded  bool      // the waiter in the record is one of its owners
	restUntil time.Time // events before that do not cause a long record to be read
}

// A waitingOwner is an owner that gets notices.
type waitingOwner struct {
	until time.Time
	order int
	req   olddriver.AcquireRequest
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

const (
	// raceDelay is how long, at most, a Store waits after an event, at random. Of many that wait,
	// most find the name taken again then, and make no attempt.
	raceDelay = 2 * time.Millisecond

	// watchedHolders is how many of the holders of a name are watched. A name with more holders is
	// also examined at intervals of holdersPause.
	watchedHolders = 32
	holdersPause   = time.Second

	// unwatchedPause is the greatest pause before a record that is not watched is read again.
	unwatchedPause = 100 * time.Millisecond

	// recordRest is the length of the rest after a long record was read, in times of the reading.
	recordRest = 20
)

// isWaiting reports whether an owner gets notices.
func (w *watcher) isWaiting(name, owner string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[name]
	return n != nil && n.owners[owner] != nil && time.Now().Before(n.owners[owner].until)
}

// addWaiter has notices sent to the owner of req, until Queue from now. It reports false if the Store
// is closed.
func (s *engine) addWaiter(ctx context.Context, req *olddriver.AcquireRequest) bool {
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
		n = &watchedName{name: req.Name, owners: map[string]*waitingOwner{}}
		w.names[req.Name] = n
	}
	own := n.owners[req.Owner]
	if own == nil {
		n.arrived++
		own = &waitingOwner{order: n.arrived}
		n.owners[req.Owner] = own
	}
	own.req = *req
	if n.due.IsZero() {
		w.watchRecord(ctx, s, n)
		w.refresh(s, n)
	}
	if until := time.Now().Add(req.Queue); until.After(own.until) {
		own.until = until
	}
	if n.due.IsZero() {
		w.schedule(s, n)
	}
	return true
}

// removeWaiter ends the notices for an owner.
func (s *engine) removeWaiter(name, owner string) {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.names[name]; n != nil {
		delete(n.owners, owner)
		if !w.removeIfUnused(n) && n.tolerant && !n.delayed {
			// The owner may have had the only notice, and made no use of it.
			w.setDue(s, n, max(time.Millisecond, time.Until(n.restUntil)))
		}
	}
}

// examineName watches a name at once: an owner of this Store now keeps others out.
func (s *engine) examineName(name string) {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.names[name]; n != nil && !w.closed {
		w.examine(s, n)
	}
}

// removeIfUnused removes n with its watches if nothing waits for it any more, and
// reports whether it did.
func (w *watcher) removeIfUnused(n *watchedName) bool {
	if len(n.owners) > 0 {
		return false
	}
	delete(w.names, n.name)
	w.setHolderSessions(nil, n, nil)
	w.unwatchRecord(n)
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
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.running.Wait()
}

// watchRecord watches the record of a name, which it creates if necessary. It does so if
// the kernel has room for a watch. Else the name is examined at intervals. The caller then refreshes
// n.
func (w *watcher) watchRecord(ctx context.Context, s *engine, n *watchedName) {
	if n.wd != 0 {
		return
	}
	if w.queue == nil {
		queue, err := newInotify()
		if err != nil {
			return
		}
		w.queue = queue
		w.running.Go(func() {
			queue.readEvents(func(wd int32, mask uint32) { w.handleEvent(s, wd, mask) })
		})
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

func (w *watcher) handleEvent(s *engine, wd int32, mask uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		for _, n := range w.names {
			w.rewatchRecord(s, n)
		}
		return
	}
	if n := w.recordsByWatch[wd]; n != nil {
		if mask&^syscall.IN_MODIFY != 0 {
			w.rewatchRecord(s, n)
			return
		}
		delay := time.Until(n.restUntil)
		if !n.recorded {
			delay = max(delay, rand.N(raceDelay))
		}
		if delay <= 0 {
			w.examine(s, n)
		} else if !n.delayed {
			n.delayed = true
			w.setDue(s, n, delay)
		}
	}
	if h := w.sessionsByWatch[wd]; h != nil && mask&syscall.IN_CLOSE_WRITE != 0 {
		w.running.Go(func() { w.awaitSessionDeath(s, h) })
	}
}

// awaitSessionDeath notifies the waiters of a session after its file was closed. The kernel reports
// the close shortly before it unlocks the file, so an attempt made at once could find the session
// alive.
func (w *watcher) awaitSessionDeath(s *engine, h *watchedSession) {
	const first, last, timeout = 10 * time.Microsecond, time.Millisecond, time.Second
	began := s.host.uptime()
	for delay := first; !s.isSessionDead(h.id); delay = min(2*delay, last) {
		if s.host.uptime()-began > timeout || retry.Sleep(s.lifetime, delay) != nil {
			return // Not closed by its owner, or closed properly.
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Collect(maps.Keys(h.names)) {
		if n.tolerant {
			w.examine(s, n)
		} else {
			s.notify(n.name)
		}
	}
}

// rewatchRecord watches a name again after its file may have been replaced, and notifies.
func (w *watcher) rewatchRecord(s *engine, n *watchedName) {
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

// examine reads the record of n, and notifies its waiters if that may be of use to them.
func (w *watcher) examine(s *engine, n *watchedName) {
	if owners := w.refresh(s, n); len(owners) > 0 {
		for _, owner := range owners {
			s.notices.Send(olddriver.Notice{Kind: olddriver.Ask, Name: n.name, Owner: owner})
		}
	}
	w.schedule(s, n)
}

// refresh reads the record of n, watches the sessions of its holders, and returns the owners that
// are to be notified: "", which means all of them, if the name is free, or kept since then.
func (w *watcher) refresh(s *engine, n *watchedName) (owners []string) {
	began := time.Now()
	rec, err := s.peekName(n.name)
	if err != nil {
		rec = record{}
	}
	n.recorded = false
	if n.tolerant = rec.Tolerant != nil; n.tolerant {
		owners = w.refreshTolerant(s, n, &rec)
		if rec.Tolerant.At != 0 {
			n.restUntil = time.Now().Add(recordRest * time.Since(began))
		}
		return owners
	}
	if n.wd != 0 {
		w.setHolderSessions(s, n, []string{rec.Session})
	}
	if !s.isHeld(&rec) { // The session may have died before it was watched.
		for _, own := range n.owners {
			n.tolerant = n.tolerant || own.req.Limit != 0
		}
		if n.tolerant {
			n.rec = record{}
			return s.ownersToNotify(n, &rec)
		}
		rec = record{}
	}
	before := n.rec.State
	n.rec = rec
	if rec.State == "" || rec.State == stateKept && before != stateKept {
		return []string{""}
	}
	return nil
}

// refreshTolerant is refresh for a record with shared and limited holds. After it has begun to watch
// a session, it looks again for dead processes: that one may have died just before.
func (w *watcher) refreshTolerant(s *engine, n *watchedName, rec *record) (owners []string) {
	for again := true; again; {
		owners = s.ownersToNotify(n, rec)
		for owner := range n.owners {
			n.recorded = n.recorded || rec.isWaiter(owner, &s.host)
		}
		w.watchRecord(s.lifetime, s, n)
		sessions := n.summarize(s, rec)
		again = n.wd != 0 && w.setHolderSessions(s, n, sessions)
	}
	return owners
}

// summarize sets the record of n to a hold that stands for those of rec and for the owner that
// keeps others out: it ends with the first of them. It returns the sessions to be watched.
func (n *watchedName) summarize(s *engine, rec *record) (sessions []string) {
	t := rec.Tolerant
	n.rec = record{}
	add := func(expires time.Duration, session string) {
		if n.rec.State == "" || expires < n.rec.Expires {
			n.rec.State, n.rec.Expires = stateHeld, expires
		}
		if session != "" && len(sessions) <= watchedHolders && !slices.Contains(sessions, session) {
			sessions = append(sessions, session)
		}
	}
	if rec.hasWaiter(&s.host) {
		add(t.WaitsUntil, t.WaiterSession)
	}
	now := s.host.frozen()
	for _, e := range t.holds {
		if e.isUnexpired(now) {
			add(e.Expires, e.Session)
		}
	}
	if len(sessions) > watchedHolders {
		n.rec.Expires = min(n.rec.Expires, s.host.uptime()+holdersPause)
		sessions = sessions[:watchedHolders]
	}
	return sessions
}

// ownersToNotify returns the owners of n that the store would grant the name now, in the order of
// their arrival: not more than fit, and none behind an exclusive one. The last one may be an owner
// that would be refused, and would then be recorded as the waiter.
func (s *engine) ownersToNotify(n *watchedName, rec *record) (owners []string) {
	waiting := slices.SortedFunc(maps.Values(n.owners), func(a, b *waitingOwner) int { return a.order - b.order })
	for _, own := range waiting {
		req := &own.req
		if rec.entryOf(req.Owner, &s.host) != nil {
			continue // It has just been granted the name.
		}
		switch why := s.refusalOf(rec, req); {
		case why == byWaiter:
			continue
		case why == notRefused && (req.Limit < 0 || len(owners)+1 < req.Limit):
			owners = append(owners, req.Owner)
		case why == notRefused, s.mustRecordWaiter(rec, req, why):
			return append(owners, req.Owner)
		default:
			return owners
		}
	}
	return owners
}

// schedule sets when n is due: at the end of the hold if the name is watched, at the next
// examination if it is not, and at the end of the waiting at the latest.
func (w *watcher) schedule(s *engine, n *watchedName) {
	if n.delayed {
		return
	}
	var end time.Time
	for _, own := range n.owners {
		if own.until.After(end) {
			end = own.until
		}
	}
	delay := time.Until(end)
	if n.wd == 0 {
		delay = min(delay, retry.HalfJitter(unwatchedPause))
	} else if n.rec.Expires > 0 {
		delay = min(delay, n.rec.Expires-s.host.uptime()+time.Millisecond+rand.N(4*time.Millisecond))
	}
	w.setDue(s, n, delay)
}

func (w *watcher) setDue(s *engine, n *watchedName, delay time.Duration) {
	n.due = time.Now().Add(delay)
	w.fireAt(s, n.due)
}

// fireAt makes the timer fire at a moment, unless it fires earlier.
func (w *watcher) fireAt(s *engine, at time.Time) {
	switch {
	case !w.fires.IsZero() && !at.Before(w.fires):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(at), func() { w.onTimer(s) })
	default:
		w.timer.Reset(time.Until(at))
	}
	w.fires = at
}

// onTimer examines the names that are due.
func (w *watcher) onTimer(s *engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.fires = time.Time{}
	now := time.Now()
	for _, n := range w.names {
		if n.due.After(now) {
			w.fireAt(s, n.due)
		} else {
			w.onDue(s, n, now)
		}
	}
}

func (w *watcher) onDue(s *engine, n *watchedName, now time.Time) {
	n.delayed = false
	for owner, own := range n.owners {
		if !now.Before(own.until) {
			delete(n.owners, owner)
		}
	}
	if w.removeIfUnused(n) {
		return
	}
	w.watchRecord(s.lifetime, s, n)
	w.examine(s, n)
}

// peekName peeks at the record of a name. If the record is just being written, another event
// follows, and another refresh.
func (s *engine) peekName(name string) (record, error) {
	f, err := s.openExisting(context.Background(), locksFolder, fileName(name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	defer f.Close()
	return s.peek(f.File)
}
