package pgstore

import (
	"sync"
	"time"
)

// A belief is what a name was when it was last seen. One that is wrong costs a
// statement more, and nothing else.
type belief int

const (
	unknown belief = iota
	believedFree
	believedHeld
)

// A memory has beliefs.
type memory struct {
	mu    sync.Mutex
	names map[string]time.Time // until when they are held; the zero time: free
}

// maxMemory bounds the memory: then it begins anew.
const maxMemory = 10000

func (m *memory) of(name string) belief {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.names[name]
	switch {
	case !ok:
		return unknown
	case until.IsZero():
		return believedFree
	case time.Now().Before(until):
		return believedHeld
	}
	return unknown
}

// free notes that a name is free.
func (m *memory) free(name string) { m.note(name, time.Time{}) }

// held notes that a name is held for a time.
func (m *memory) held(name string, left time.Duration) { m.note(name, time.Now().Add(left)) }

func (m *memory) note(name string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil || len(m.names) >= maxMemory {
		m.names = map[string]time.Time{}
	}
	m.names[name] = until
}

// forget notes that it is not known any more what a name is.
func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.names, name)
}
