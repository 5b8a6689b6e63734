package pgstore

import (
	"sync"
	"time"
)

// A nameState is the last known state of a name. A wrong one costs one more statement, and nothing
// else.
type nameState int

const (
	stateUnknown nameState = iota
	stateFree
	stateHeld
	stateContended // it has, or had, waiters
)

// A nameCache holds the last known states of names.
type nameCache struct {
	mu     sync.Mutex
	states map[string]cachedState
}

type cachedState struct {
	name  nameState
	until time.Time // the end of stateHeld
}

// maxCachedNames bounds the cache. A full cache is emptied.
const maxCachedNames = 10000

// lastState returns the last known state of a name.
func (c *nameCache) lastState(name string) nameState {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.states[name]
	if !ok || state.name == stateHeld && !time.Now().Before(state.until) {
		return stateUnknown
	}
	return state.name
}

// set records a state. left is how long the name is held, and 0 in other states.
func (c *nameCache) set(name string, state nameState, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states == nil || len(c.states) >= maxCachedNames {
		c.states = map[string]cachedState{}
	}
	c.states[name] = cachedState{state, time.Now().Add(left)}
}
