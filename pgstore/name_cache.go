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
)

// A nameCache holds the last known states of names.
type nameCache struct {
	mu        sync.Mutex
	heldUntil map[string]time.Time // until when they are held; the zero time: free
}

// maxCachedNames bounds the cache. A full cache is emptied.
const maxCachedNames = 10000

// lastState returns the last known state of a name.
func (c *nameCache) lastState(name string) nameState {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.heldUntil[name]
	switch {
	case !ok:
		return stateUnknown
	case until.IsZero():
		return stateFree
	case time.Now().Before(until):
		return stateHeld
	}
	return stateUnknown
}

// setFree records that a name is free.
func (c *nameCache) setFree(name string) { c.setHeldUntil(name, time.Time{}) }

// setHeld records that a name is held for a time.
func (c *nameCache) setHeld(name string, left time.Duration) {
	c.setHeldUntil(name, time.Now().Add(left))
}

func (c *nameCache) setHeldUntil(name string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heldUntil == nil || len(c.heldUntil) >= maxCachedNames {
		c.heldUntil = map[string]time.Time{}
	}
	c.heldUntil[name] = until
}

// setUnknown records that the state of a name is not known any more.
func (c *nameCache) setUnknown(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heldUntil, name)
}
