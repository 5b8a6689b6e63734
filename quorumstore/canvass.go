package quorumstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A canvass is one request put to all nodes at once.
type canvass[T any] struct {
	s       *Store
	caller  context.Context
	limit   context.Context // ends when the nodes have had their time
	cancel  context.CancelFunc
	answers chan answer[T] // has room for all
	back    atomic.Int32   // nodes that have answered
	enough  <-chan time.Time
}

// An answer is what came back from a node.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// poll puts a request to all nodes, each on a goroutine of its own. The
// requests do not end with ctx, nor when the caller has heard enough: they run
// on until they are answered, or their time is over.
func poll[T any](ctx context.Context, s *Store, request func(context.Context, *node) (T, error)) *canvass[T] {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	c := &canvass[T]{s: s, caller: ctx, limit: limit, cancel: cancel, answers: make(chan answer[T], len(s.nodes))}
	s.start(len(s.nodes))
	for _, n := range s.nodes {
		go func() {
			defer s.done()
			value, err := request(limit, n)
			c.answers <- answer[T]{n.index, value, err}
			if int(c.back.Add(1)) == len(s.nodes) {
				c.cancel()
			}
		}()
	}
	return c
}

// next waits for another answer. It reports false when the nodes have had their
// time, and an error when the caller or the Store has ended.
func (c *canvass[T]) next() (answer[T], bool, error) {
	select {
	case a := <-c.answers:
		return a, true, nil
	default:
	}
	select {
	case a := <-c.answers:
		return a, true, nil
	case <-c.limit.Done():
		return c.lastMinute()
	case <-c.enough:
		return c.lastMinute()
	case <-c.caller.Done():
		return answer[T]{}, false, c.caller.Err()
	case <-c.s.closing:
		return answer[T]{}, false, driver.ErrClosed
	}
}

// lastMinute returns an answer that came at the moment at which time was up.
func (c *canvass[T]) lastMinute() (answer[T], bool, error) {
	select {
	case a := <-c.answers:
		return a, true, nil
	default:
		return answer[T]{}, false, nil
	}
}

// within ends the wait for further answers after so long.
func (c *canvass[T]) within(d time.Duration) {
	if c.enough == nil {
		c.enough = time.After(d)
	}
}

// hear passes answers on until decided returns true, or no more come.
func (c *canvass[T]) hear(decided func(answer[T]) bool) error {
	for range c.s.nodes {
		a, more, err := c.next()
		if err != nil || !more {
			return err
		}
		if decided(a) {
			return nil
		}
	}
	return nil
}

// errNoAnswer is the vote of a node that has not answered: in its time, or by
// the time the others had decided it.
var errNoAnswer = errors.New("no answer yet")
