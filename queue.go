package holdfast

import "container/list"

// A slot is the place of one name in a Client. One caller at a time has the
// turn: it alone talks to the store about this name, and keeps the turn while
// it holds the lock. The others wait in line. A slot exists while anybody has
// its turn.
type slot struct {
	hold *hold      // of the one who has the turn, once it holds the lock
	line *list.List // of *waiter, first come first served; nil if empty so far
	seen *HeldError // what the one who has the turn last found in the way
}

// A waiter waits in line for the turn of a name.
type waiter struct {
	reentrant bool
	turn      chan *hold // gets nil for the turn, or a hold to join
}

// enter waits for the turn of the acquisition's name. It returns a hold instead
// if there is one that the acquisition may join.
func (a *acquisition) enter() (*hold, error) {
	c := a.c
	c.mu.Lock()
	s := c.slots[a.full]
	if s == nil {
		c.slots[a.full] = &slot{}
		c.mu.Unlock()
		return nil, nil
	}
	if a.o.Reentrant && s.hold != nil && s.hold.joinable() {
		defer c.mu.Unlock()
		return s.hold, nil
	}
	a.last = c.taken(s, a.full)
	if a.try {
		defer c.mu.Unlock()
		return nil, a.last
	}
	if s.line == nil {
		s.line = list.New()
	}
	w := &waiter{reentrant: a.o.Reentrant, turn: make(chan *hold, 1)}
	place := s.line.PushBack(w)
	c.mu.Unlock()

	a.began = c.clock.now()
	a.contended()
	var err error
	select {
	case h := <-w.turn:
		return h, nil
	case <-a.ctx.Done():
		err = a.ctx.Err()
	case <-c.closing:
		err = ErrClosed
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case h := <-w.turn: // it came at the same moment
		if h == nil {
			c.pass(a.full, s)
		}
	default:
		s.line.Remove(place)
	}
	return nil, err
}

// taken describes why a name cannot be had at once. The caller holds c.mu.
func (c *Client) taken(s *slot, full string) *HeldError {
	switch {
	case s.hold != nil:
		return &HeldError{Record: s.hold.record()}
	case s.seen != nil:
		return s.seen
	}
	return &HeldError{Record: Record{Name: c.strip(full)}}
}

// leave gives up the turn of a name.
func (c *Client) leave(full string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass(full, c.slots[full])
}

// pass hands the turn to the first in line. The caller holds c.mu.
func (c *Client) pass(full string, s *slot) {
	s.hold = nil
	if s.line == nil || s.line.Len() == 0 {
		delete(c.slots, full)
		return
	}
	s.line.Remove(s.line.Front()).(*waiter).turn <- nil
}

// install makes a hold the one of its slot, if it has one, and invites those in
// line who may join it. The caller holds c.mu.
func (c *Client) install(h *hold) {
	if h.adopted {
		c.adopted[h] = struct{}{}
		return
	}
	s := c.slots[h.full]
	s.hold, s.seen = h, nil
	if !h.reentrant || s.line == nil {
		return
	}
	var next *list.Element
	for e := s.line.Front(); e != nil; e = next {
		next = e.Next()
		if w := e.Value.(*waiter); w.reentrant {
			s.line.Remove(e)
			w.turn <- h
		}
	}
}
