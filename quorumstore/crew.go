package quorumstore

import (
	"slices"
	"sync"
	"time"
)

// A crew is the goroutines that make requests to nodes. One that has nothing to
// do is kept for a while: the stack of a new one has to grow first, which was a
// seventh of all the work of a busy client.
type crew struct {
	mu     sync.Mutex
	idle   []chan visit // the one that has worked last is last
	spare  int          // so many were not needed since it was last thinned out
	thin   *time.Timer  // nil if nobody is idle
	closed bool
}

// A visit is a request to be made to a node.
type visit struct {
	node *node
	by   interface{ call(n *node) }
}

// thinAfter is how often those who were not needed since are sent away.
const thinAfter = time.Second

// send has a visit made.
func (c *crew) send(v visit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		go c.work(v)
		return
	}
	c.idle[last] <- v // It has room, and is empty.
	c.idle[last] = nil
	c.idle = c.idle[:last]
	c.spare = min(c.spare, last)
}

// work makes visits, as long as there are any.
func (c *crew) work(v visit) {
	next := make(chan visit, 1)
	for wanted := true; wanted; {
		v.by.call(v.node)
		if !c.rest(next) {
			return
		}
		v, wanted = <-next
	}
}

// rest makes a goroutine idle, and reports whether it is kept.
func (c *crew) rest(next chan visit) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.idle = append(c.idle, next)
	if c.thin == nil {
		c.spare = 0
		c.thin = time.AfterFunc(thinAfter, c.thinOut)
	}
	return true
}

// thinOut sends those away who were not needed.
func (c *crew) thinOut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismiss(c.spare)
	c.spare = len(c.idle)
	if c.spare == 0 {
		c.thin = nil
		return
	}
	c.thin.Reset(thinAfter)
}

// dismiss sends n of the idle away. The caller holds c.mu.
func (c *crew) dismiss(n int) {
	for _, next := range c.idle[:n] {
		close(next)
	}
	c.idle = slices.Delete(c.idle, 0, n)
}

// close sends all away: the idle now, the others when they are done.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.spare = true, 0
	c.dismiss(len(c.idle))
	if c.thin != nil {
		c.thin.Stop()
	}
}
