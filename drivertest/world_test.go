package drivertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A world is a place for locks with everything that the suite can ask for, as
// short and as plain as it can be. With a bug it is broken in one way.
type world struct {
	bug    bug
	claims driver.Guarantees

	mu      sync.Mutex
	entries map[string]*entry
	last    map[string]int64  // the last token of each name
	left    map[string]*entry // released holds, for bugs
	broken  bool              // made so by a bug
	watches map[*watched]bool
	opened  int
	number  int // of the last watch
	dropped int // signals and writes counted by bugs
}

type entry struct {
	owner    string
	record   driver.Record
	until    time.Time
	takenBy  *refStore
	detached bool
}

type watched struct {
	number  int
	name    string
	by      *refStore
	signals chan struct{}
}

// A refStore is a store over a world.
type refStore struct {
	w      *world
	skew   time.Duration // the error of its process's clock, used by bugs only
	closed bool
	fault  Fault
	silent bool
	grants int64 // counted by a bug
	dead   bool  // made so by a bug
}

var errLink = errors.New("the connection was lost")

// everything is what a full world claims.
var everything = driver.Guarantees{
	Store: "reference", Scope: driver.ScopeNetwork, Blocking: driver.BlocksToContext, Fencing: true, HolderCrash: driver.RecoveryTTL,
	Restart: driver.FateKept, Failover: driver.FateKept, Push: true, Supervised: true,
	Lookup: true, List: true, Break: true, Metadata: true, Keep: true, Detached: true,
}

// nothing is the least that a store can claim.
var nothing = driver.Guarantees{
	Store: "reference", Scope: driver.ScopeProcess,
	HolderCrash: driver.RecoveryAtOnce, Restart: driver.FateFreed, Failover: driver.FateKept,
}

// restartFrees and crashFrees are full worlds in which holds end earlier.
var restartFrees, crashFrees = func() (a, b driver.Guarantees) {
	a, b = everything, everything
	a.Restart, b.HolderCrash = driver.FateFreed, driver.RecoveryAtOnce
	return a, b
}()

// overseers is what a store claims that watches over the wake-ups that it does
// not give.
var overseers = func() driver.Guarantees {
	claims := without(push)
	claims.Supervised = true
	return claims
}()

func newWorld(claims driver.Guarantees, b bug) *world {
	return &world{
		bug: b, claims: claims,
		entries: map[string]*entry{}, last: map[string]int64{}, left: map[string]*entry{}, watches: map[*watched]bool{},
	}
}

// backing offers all the harm that can be done to the world.
func (w *world) backing() Backing {
	return Backing{
		Open:       func(testing.TB) driver.Store { return w.open(0) },
		OpenSkewed: func(_ testing.TB, skew time.Duration) driver.Store { return w.open(skew) },
		Restart:    func(testing.TB) { w.restart() },
		Crash:      func(_ testing.TB, s driver.Store) { w.crash(ref(s)) },
		Fault:      func(_ testing.TB, s driver.Store, f Fault) { ref(s).fault = f },
		Silence:    func(_ testing.TB, s driver.Store) { w.silence(ref(s)) },
		Sever:      func(_ testing.TB, s driver.Store) { w.sever(ref(s)) },
	}
}

// ref is the reference store under a store that was opened.
func ref(s driver.Store) *refStore {
	if w, ok := s.(noWatcher); ok {
		return w.Store.(*refStore)
	}
	return s.(*refStore)
}

// noWatcher hides the Watch of a store.
type noWatcher struct{ driver.Store }

func (w *world) open(skew time.Duration) driver.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	s := &refStore{w: w, skew: skew}
	if w.has(separateWorlds) && w.opened > 1 {
		s.w = newWorld(w.claims, w.bug)
	}
	if !w.claims.Push && !w.has(underclaimsPush) || w.has(pushWithoutWatch) {
		return noWatcher{s}
	}
	return s
}

func (w *world) has(b bug) bool { return w.bug == b }

func (w *world) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims.Restart == driver.FateFreed && !w.has(restartKeepsHolds) || w.has(restartForgets) {
		clear(w.entries)
		clear(w.last)
	}
	w.broken = w.has(restartBreaksWorld)
	if w.has(tokensFallAtRestart) {
		for name := range w.last {
			w.last[name] = 0
		}
	}
}

func (w *world) crash(s *refStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims.HolderCrash != driver.RecoveryAtOnce && !w.has(crashFreesAtOnce) && !w.has(crashFreesEverything) || w.has(crashFreesNothing) {
		return
	}
	for name, e := range w.entries {
		if e.takenBy == s && (!e.detached || w.has(crashEndsDetached)) || w.has(crashFreesEverything) {
			delete(w.entries, name)
		}
	}
}

// silence has the server answer the store no more. The store notices.
func (w *world) silence(s *refStore) {
	s.silent = true
	if w.claims.Supervised && !w.has(silenceUnnoticed) {
		time.AfterFunc(time.Second, func() { w.remind(s) })
	}
}

// remind signals all watches of a store, again and again until it is closed.
func (w *world) remind(s *refStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range w.watches {
		if watch.by == s {
			signal(watch.signals)
		}
	}
	if !s.closed && !w.has(remindsOnce) {
		time.AfterFunc(time.Second, func() { w.remind(s) })
	}
}

func (w *world) sever(s *refStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range w.watches {
		if watch.by == s && w.has(severedWatchEnds) {
			delete(w.watches, watch)
		}
		if watch.by == s && !w.has(severedWatchIsSilent) {
			signal(watch.signals)
		}
	}
	if w.has(severedStoreIsDead) {
		s.dead = true
	}
}

func signal(signals chan struct{}) {
	select {
	case signals <- struct{}{}:
	default:
	}
}

// wake signals the watches of a name.
func (w *world) wake(name string, by *refStore) {
	w.dropped++
	for watch := range w.watches {
		switch {
		case watch.name != name && !w.has(wakesEverybody):
		case w.has(wakesOwnStoreOnly) && watch.by != by:
		case w.has(dropsWakeUps) && w.dropped%3 == 0:
		default:
			signal(watch.signals)
			if w.has(wakesOnce) {
				delete(w.watches, watch)
			}
			if w.has(wakesOneWatch) {
				return
			}
		}
	}
}
