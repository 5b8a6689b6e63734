package drivertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A model is a place for locks with everything that the suite can ask for, as
// short and as plain as it can be. With a bug it is broken in one way.
type model struct {
	bug    bug
	claims driver.Guarantees

	mu      sync.Mutex
	entries map[string]*entry
	last    map[string]int64  // the last token of each name
	left    map[string]*entry // released holds, for bugs
	broken  bool              // made so by a bug
	opened  int
	dropped int // notices counted by bugs

	epoch     time.Time // when the time of places begins
	places    map[string][]refEntry
	interests []*interest
	listeners map[*listener]bool
}

type entry struct {
	owner    string
	record   driver.Record
	tokens   int // how many tokens the grant had
	until    time.Time
	first    time.Time // its end unless it is renewed
	takenBy  *refStore
	detached bool
	stranger bool
	admitted bool // from a place
}

// A refStore is a store over a model.
type refStore struct {
	model  *model
	skew   time.Duration // the error of its process's clock, used by bugs only
	closed bool
	fault  Fault
	silent bool
	busy   time.Time // until when it cannot serve
	seen   string    // the name that it last saw held, for a bug
	grants int64     // counted by a bug
	dead   bool      // made so by a bug
	cut    bool      // it is not notified
}

var errLink = errors.New("the connection was lost")

// everything is what a full model claims.
var everything = driver.Guarantees{
	Store: "reference", Scope: driver.ScopeNetwork, Fencing: true, HolderCrash: driver.RecoveryTTL,
	Restart: driver.FateKept, Failover: driver.FateKept, Fair: true,
	Lookup: true, List: true, Break: true, Metadata: true, Keep: true, Detached: true,
}

// nothing is the least that a store can claim.
var nothing = driver.Guarantees{
	Store: "reference", Scope: driver.ScopeProcess,
	HolderCrash: driver.RecoveryAtOnce, Restart: driver.FateFreed, Failover: driver.FateKept,
}

// restartFrees and crashFrees are full models in which holds end earlier.
var restartFrees, crashFrees = func() (a, b driver.Guarantees) {
	a, b = everything, everything
	a.Restart, b.HolderCrash = driver.FateFreed, driver.RecoveryAtOnce
	return a, b
}()

// coarse is a full model with a Grain, by which each hold lasts longer.
var coarse = func() driver.Guarantees {
	claims := everything
	claims.Grain = 3 * time.Second
	return claims
}()

func newModel(claims driver.Guarantees, b bug) *model {
	return &model{
		bug: b, claims: claims,
		entries: map[string]*entry{}, last: map[string]int64{}, left: map[string]*entry{},
		epoch: time.Now(), places: map[string][]refEntry{}, listeners: map[*listener]bool{},
	}
}

// backing offers all the harm that can be done to the model.
func (m *model) backing() Backing {
	return Backing{
		Open:       func(testing.TB) driver.Store { return m.open(0) },
		OpenSkewed: func(_ testing.TB, skew time.Duration) driver.Store { return m.open(skew) },
		Restart:    func(testing.TB) { m.restart() },
		Crash:      func(_ testing.TB, s driver.Store) { m.crash(ref(s)) },
		Fault:      func(_ testing.TB, s driver.Store, f Fault) { ref(s).fault = f },
		Busy:       func(_ testing.TB, s driver.Store, d time.Duration) { ref(s).busy = time.Now().Add(d) },
		Silence:    func(_ testing.TB, s driver.Store) { m.silence(ref(s)) },
		Sever:      func(_ testing.TB, s driver.Store) { m.sever(ref(s)) },
		Occupy:     func(_ testing.TB, name string, way int) bool { return m.occupy(name, way) },
	}
}

// ref is the reference store under a store that was opened.
func ref(s driver.Store) *refStore {
	if m, ok := s.(withoutNotify); ok {
		return m.Store.(*refStore)
	}
	return s.(*refStore)
}

// withoutNotify hides the Notify of a store.
type withoutNotify struct{ driver.Store }

func (m *model) open(skew time.Duration) driver.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	s := &refStore{model: m, skew: skew}
	if m.has("separate worlds") && m.opened > 1 {
		s.model = newModel(m.claims, m.bug)
	}
	if m.has("cannot notify") || m.has("queues without notify") {
		return withoutNotify{s}
	}
	return s
}

func (m *model) has(b bug) bool { return m.bug == b }

func (m *model) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims.Restart == driver.FateFreed && !m.has("restart keeps holds") || m.has("restart forgets") {
		clear(m.entries)
		clear(m.last)
		clear(m.places)
	}
	m.broken = m.has("restart breaks world")
	if m.has("tokens fall at restart") {
		for name := range m.last {
			m.last[name] = 0
		}
	}
}

func (m *model) crash(s *refStore) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has("crashed places stay") {
		m.prolongPlaces(s)
	}
	if m.claims.HolderCrash != driver.RecoveryAtOnce && !m.has("crash frees at once") && !m.has("crash frees everything") || m.has("crash frees nothing") {
		return
	}
	for name, e := range m.entries {
		if e.takenBy == s && (!e.detached || m.has("crash ends detached")) || m.has("crash frees everything") {
			delete(m.entries, name)
		}
	}
}

// prolongPlaces makes the places of a store last long.
func (m *model) prolongPlaces(by *refStore) {
	for _, places := range m.places {
		for i := range places {
			if places[i].Data.by == by {
				places[i].Until += long
			}
		}
	}
}

// silence has the server answer the store no more.
func (m *model) silence(s *refStore) { s.silent = true }

// occupy puts the entry of a stranger under a name.
func (m *model) occupy(name string, way int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &entry{owner: "the stranger's", stranger: true, until: time.Now().Add(long), record: driver.Record{Name: name}}
	switch way {
	case 0:
		e.record.Holder = "\x1b[2J"
	case 1:
		e.until = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	default:
		return false
	}
	m.entries[m.key(name)] = e
	return true
}
