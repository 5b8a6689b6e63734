package redisstore

import (
	"hash/maphash"
	"math/rand/v2"
	"time"
)

// A tracked is a lock that is waited for. All of it is guarded by the watcher's
// mutex.
type tracked struct {
	key     string
	watches []*watch
	server  *tracker // nil while it is looked for

	armed   bool // the server tracks it; what follows was seen last, and nothing was missed
	held    bool
	value   string // it tells one hold from another
	renewed bool   // by this owner, since he was first seen

	look *time.Timer // until the lock is looked at, after a change
	tell *time.Timer // until a change of owners is signalled
}

// tellWithin is how soon a watch is signalled when a lock has gone from one owner
// to another. Whoever waits lost nothing by that; he should learn in time when
// the new hold ends.
const tellWithin = 100 * time.Millisecond

// changed takes the news that a lock has changed: it was released, taken or
// renewed. Looking at it tells which, and has the server track it again. The
// caller holds w.mu.
//
// A waiter who is woken only then tries two round trips after the release. An
// owner who has not renewed yet is likely to have released, and the waiter is
// woken at once: that is in vain for a hold's first renewal. Where many want the
// lock, all looking and trying at once would be in vain but for one of them:
// each looks after a pause of his own.
func (w *watcher) changed(t *tracked, l *trackLink) {
	if t.look != nil {
		return
	}
	if pause := w.crowds.pause(t.key); pause > 0 {
		t.look = time.AfterFunc(pause, func() { w.lookAt(t) })
		return
	}
	l.get(t.key)
	if t.armed && t.held && !t.renewed {
		t.wake()
	}
}

// lookAt asks for the value of a lock that has changed a while ago.
func (w *watcher) lookAt(t *tracked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.look == nil {
		return // It was stopped too late.
	}
	t.look = nil
	if t.server != nil && t.server.link != nil {
		t.server.link.get(t.key)
	}
}

// seen notes the value of a lock, which the server tracks from then on, and
// reports whether that has put a watch in force. It does not signal if the owner
// has merely renewed.
func (w *watcher) seen(server *tracker, key, value string, held bool) (begun bool) {
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
		w.crowds.won(key)
		t.wake()
	case lost:
		w.crowds.lost(key)
		if t.tell == nil {
			t.tell = time.AfterFunc(upTo(tellWithin), func() { w.tellOf(t) })
		}
	case !same:
		t.wake()
	}
	for _, one := range t.watches {
		if !one.inForce {
			one.become(nil)
			begun = true
		}
	}
	return begun
}

// tellOf signals that a lock has gone from one owner to another a while ago.
func (w *watcher) tellOf(t *tracked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.tell != nil {
		t.wake()
	}
}

// wake signals the watches that are in force.
func (t *tracked) wake() {
	stop(&t.tell)
	for _, one := range t.watches {
		if one.inForce {
			one.wake()
		}
	}
}

// rest ends the pauses of a lock.
func (t *tracked) rest() {
	stop(&t.look)
	stop(&t.tell)
}

// stop stops a timer. If it has run out already, what it does sees that it has
// been stopped.
func stop(timer **time.Timer) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
}

// crowds knows for how long to pause before looking at a lock that has changed:
// the longer, the more often somebody else was faster. It has a place for every
// hash of a name, and not for every name, so that it does not grow; two names
// that share a place pause alike.
type crowds struct {
	seed   maphash.Seed
	pauses [256]uint8 // the greatest, in steps
}

// The greatest pause is maxPause steps: with a round trip and an attempt that is
// for how long a lock can lie free with nobody about to try.
const (
	maxPause  = 15
	pauseStep = 500 * time.Microsecond
)

func (c *crowds) of(key string) *uint8 {
	return &c.pauses[maphash.String(c.seed, key)%uint64(len(c.pauses))]
}

// pause draws a pause at random.
func (c *crowds) pause(key string) time.Duration {
	greatest := *c.of(key)
	if greatest == 0 {
		return 0
	}
	return 1 + rand.N(time.Duration(greatest)*pauseStep)
}

// lost notes that somebody else has taken the lock.
func (c *crowds) lost(key string) {
	place := c.of(key)
	*place = min(2*(*place)+1, maxPause)
}

// won notes that the lock was found free.
func (c *crowds) won(key string) { *c.of(key) /= 2 }
