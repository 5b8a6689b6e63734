package redisstore

import (
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

// A watchedKey is a lock with waiters. All of it is guarded by the watcher's mutex.
type watchedKey struct {
	key     string
	watches []*watch
	server  *trackingServer // nil until it is found

	armed   bool // the server tracks it; what follows was seen last, and nothing was missed
	held    bool
	value   string // differs between holds
	renewed bool   // by this owner, since it was first seen

	readTimer     *time.Timer // until the lock is read, after a change
	handoverTimer *time.Timer // until a change of owners is signaled
}

// handoverDelay bounds how late waiters learn that the lock has gone from one owner to another. They
// cannot acquire it then; they only need the end of the new hold.
const handoverDelay = 100 * time.Millisecond

// onInvalidate handles the message that a lock was released, taken or renewed. Reading the lock
// shows which, and makes the server track it again. The caller holds w.mu.
//
// A waiter that is woken by the reply tries two round trips after the release. An owner that has
// not renewed yet is likely to have released: its waiters are woken at once, in vain if it was the
// first renewal of the hold. Where many clients want the lock, reads and attempts at the same time
// would be in vain for all but one: each client reads after a random pause.
func (w *watcher) onInvalidate(t *watchedKey, l *trackingConn) {
	if t.readTimer != nil {
		return
	}
	if pause := w.contention.randomDelay(t.key); pause > 0 {
		t.readTimer = time.AfterFunc(pause, func() { w.readDelayed(t) })
		return
	}
	l.requestValue(t.key)
	if t.armed && t.held && !t.renewed {
		t.wake()
	}
}

// readDelayed requests the value of a lock when the pause after its change is over.
func (w *watcher) readDelayed(t *watchedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.readTimer == nil {
		return // It was stopped too late.
	}
	t.readTimer = nil
	if t.server != nil && t.server.link != nil {
		t.server.link.requestValue(t.key)
	}
}

// onValue records the value of a lock, which the server tracks from then on, and reports whether
// that has made a watch active. It does not signal if the owner has only renewed.
func (w *watcher) onValue(server *trackingServer, key, value string, held bool) (activated bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := server.locks[key]
	if t == nil {
		return false
	}
	same := t.armed && t.held && held && t.value == value
	lost := t.armed && held && !same
	t.armed, t.held, t.value, t.renewed = true, held, value, same
	switch {
	case !held:
		w.contention.shrink(key)
		t.wake()
	case lost:
		w.contention.grow(key)
		if t.handoverTimer == nil {
			t.handoverTimer = time.AfterFunc(retry.HalfJitter(handoverDelay), func() { w.signalHandover(t) })
		}
	case !same:
		t.wake()
	}
	for _, one := range t.watches {
		if !one.active {
			one.setReady(nil)
			activated = true
		}
	}
	return activated
}

// signalHandover signals, after a pause, that a lock has gone from one owner to another.
func (w *watcher) signalHandover(t *watchedKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.handoverTimer != nil {
		t.wake()
	}
}

// wake signals the active watches.
func (t *watchedKey) wake() {
	stopTimer(&t.handoverTimer)
	for _, one := range t.watches {
		if one.active {
			one.wake()
		}
	}
}

// stopTimers ends the pauses of a lock.
func (t *watchedKey) stopTimers() {
	stopTimer(&t.readTimer)
	stopTimer(&t.handoverTimer)
}

// stopTimer stops a timer. The function of a timer that has already fired finds it nil.
func stopTimer(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}

// A contentionBackoff has the greatest pause before a lock that has changed is read: the more often
// other clients were faster, the longer. It has a place for every hash of a name, and not for every
// name, so that its size is fixed; two names that share a place have the same pause.
type contentionBackoff struct {
	seed   maphash.Seed
	pauses [256]uint8 // the greatest, in steps
}

// The greatest pause is maxPause steps. A lock may be free for that long, a round trip and an
// attempt before a waiter acquires it.
const (
	maxPause  = 15
	pauseStep = 500 * time.Microsecond
)

func (c *contentionBackoff) stepsOf(key string) *uint8 {
	return &c.pauses[maphash.String(c.seed, key)%uint64(len(c.pauses))]
}

// randomDelay draws a pause at random.
func (c *contentionBackoff) randomDelay(key string) time.Duration {
	greatest := *c.stepsOf(key)
	if greatest == 0 {
		return 0
	}
	return 1 + rand.N(time.Duration(greatest)*pauseStep)
}

// grow records that another client has taken the lock.
func (c *contentionBackoff) grow(key string) {
	place := c.stepsOf(key)
	*place = min(2*(*place)+1, maxPause)
}

// shrink records that the lock was found free.
func (c *contentionBackoff) shrink(key string) { *c.stepsOf(key) /= 2 }
