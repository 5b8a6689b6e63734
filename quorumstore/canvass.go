package quorumstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A canvass is one request put to all nodes at once. Whoever brings an answer
// counts it, so that the caller is woken once, when the answers decide it.
type canvass[T any] struct {
	s       *Store
	caller  context.Context
	limit   limit
	ctx     context.Context // of the requests
	request func(context.Context, *node) (T, error)
	start   func(*node) bool // begins a request, unless it must be made by request; nil if all must
	over    chan struct{}    // closed when no more answers are counted

	mu    sync.Mutex
	count func(answer[T]) bool // nil when no more answers are counted
	left  int                  // answers to come
	grace *time.Timer
}

// An answer is what came back from a node.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// poll prepares a request. It will not end with ctx, nor when the caller has
// heard enough: it runs on until it is answered, or its limit is reached.
func poll[T any](ctx context.Context, s *Store, request func(context.Context, *node) (T, error)) *canvass[T] {
	return &canvass[T]{s: s, caller: ctx, request: request, over: make(chan struct{}), left: len(s.nodes)}
}

// send puts the request to all nodes, to each that it has to wait for in a
// goroutine of its own.
func (c *canvass[T]) send() {
	c.limit = c.s.limit()
	c.ctx = limited{c.limit.node, c.caller}
	for _, n := range c.s.nodes {
		c.s.begin(n)
		if c.start == nil || !c.start(n) {
			c.s.crew.send(visit{n, c})
		}
	}
}

// call puts the request to one node.
func (c *canvass[T]) call(n *node) {
	value, err := c.request(c.ctx, n)
	c.arrive(n, value, err)
}

// arrive brings the answer of a node.
func (c *canvass[T]) arrive(n *node, value T, err error) {
	defer c.s.done(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	if c.count != nil && (c.count(answer[T]{n.index, value, err}) || c.left == 0) {
		c.end()
	}
}

// hear sends the request and passes the answers on, one at a time, until count
// reports that they decide it, or no more are to come. The error is the end of
// the caller or of the Store. When hear has returned, nothing is counted.
func (c *canvass[T]) hear(count func(answer[T]) bool) error {
	c.count = count
	c.send()
	var err error
	cancelled, deadline := driver.Ends(c.caller)
	if !deadline.IsZero() && time.Until(deadline) < c.s.timeout {
		cancelled = c.caller.Done()
	}
	select {
	case <-c.over:
		return nil
	case <-c.limit.caller:
	case <-cancelled:
		err = c.caller.Err()
	case <-c.s.closing:
		err = driver.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil { // It was decided at that moment.
		return nil
	}
	c.end()
	return err
}

// within ends the wait for further answers after so long. It is for count.
func (c *canvass[T]) within(d time.Duration) {
	if c.grace == nil {
		c.grace = time.AfterFunc(d, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.end()
		})
	}
}

// end ends the count. The caller holds c.mu.
func (c *canvass[T]) end() {
	if c.count == nil {
		return
	}
	c.count = nil
	close(c.over)
	if c.grace != nil {
		c.grace.Stop()
	}
}

// errNoAnswer is the vote of a node that has not answered: in its time, or by
// the time the others had decided it.
var errNoAnswer = errors.New("no answer yet")
