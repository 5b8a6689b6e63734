package quorumstore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lane keeps the order of one owner's requests at one node, so that a release
// never overtakes the acquisition that it undoes. However long the node hangs,
// a lane has no more in it than one request that hangs, one release behind it,
// and what the calls under way are waiting for.
type lane struct {
	last       *errand
	asked      int       // how many acquisitions were sent
	doubtUntil time.Time // see doubtTime
}

// An errand is the place of one request in a lane. All of it is guarded by
// Store.mu, except the last part.
type errand struct {
	ahead   *errand // the one before, nil if there is none
	kind    kind
	sent    bool
	skipped bool          // it never will be sent: who is behind waits for who is ahead
	needed  bool          // a release that somebody else relies on, too
	over    bool          // it is done with, or skipped
	next    func()        // called when it is done with, if it is not nil
	done    chan struct{} // closed then; nil if nobody waits

	// Set before it is over.
	leaves bool  // an acquisition that may have left a hold
	ended  bool  // a release that ended a hold
	err    error // why a release was not confirmed
}

type kind uint8

const (
	acquisition kind = iota
	release
	keep // a release that keeps the name
)

func kindOf(req driver.ReleaseRequest) kind {
	if req.Keep > 0 {
		return keep
	}
	return release
}

// A place is where a request is in a lane.
type place struct {
	*errand         // nil if there is none
	joined  bool    // it is somebody else's errand, and will do for both
	begun   bool    // its turn has come, and it counts as sent
	behind  *errand // a request that is on its way, after which it can be started
}

// queue gives each request that is wanted (nil: one to every node) its place. A
// release joins one of its kind that waits at the end of the lane.
func (s *Store) queue(c *claim, k kind, wanted func(node int) bool) []place {
	return s.place(c, k, wanted, false)
}

// enter is queue for requests to all nodes, of which those are marked that can be
// started: at once, or when the acquisition is over that they undo.
func (s *Store) enter(c *claim, k kind) []place { return s.place(c, k, nil, true) }

func (s *Store) place(c *claim, k kind, wanted func(node int) bool, begin bool) []place {
	places := make([]place, len(s.nodes))
	errands := make([]errand, len(s.nodes))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.lanes {
		if wanted != nil && !wanted(i) {
			continue
		}
		l := &c.lanes[i]
		c.users++
		last := l.last.inForce()
		if k != acquisition && last != nil && last.kind == k && !last.sent {
			last.needed = true
			places[i] = place{errand: last, joined: true}
			continue
		}
		l.last = &errands[i]
		l.last.ahead, l.last.kind = last, k
		places[i] = place{errand: l.last}
		switch {
		case !begin || !l.doubtUntil.IsZero() || !s.nodes[i].startable():
		case last == nil:
			places[i].begun = true
			l.mark(l.last)
		case k != acquisition && last.kind == acquisition && last.sent:
			places[i].behind = last
		}
	}
	return places
}

// follow has f called when an errand is over, to start the one behind it.
func (s *Store) follow(e *errand, f func()) {
	s.mu.Lock()
	over := e.over
	if !over {
		e.next = f
	}
	s.mu.Unlock()
	if over {
		f()
	}
}

// mark marks an errand as sent.
func (l *lane) mark(e *errand) {
	e.sent = true
	if e.kind == acquisition {
		l.asked++
	}
}

// inForce returns the first errand, from this one on towards the front, that is
// not over; nil if there is none.
func (e *errand) inForce() *errand {
	for e != nil && e.over {
		e = e.ahead
	}
	return e
}

// end marks an errand as over.
func (e *errand) end() {
	if e.over {
		return
	}
	e.over = true
	if e.done != nil {
		close(e.done)
	}
}

// waitFor returns a channel that is closed when the errand is over.
func (e *errand) waitFor() <-chan struct{} {
	if e.done == nil {
		e.done = make(chan struct{})
		if e.over {
			close(e.done)
		}
	}
	return e.done
}

// ahead returns nil if it is the errand's turn, and else what to wait for.
func (s *Store) ahead(e *errand) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ahead = e.ahead.inForce()
	if e.ahead == nil {
		return nil
	}
	return e.ahead.waitFor()
}

// await waits for the errand's turn, and reports whether it came before ctx
// ended.
func (s *Store) await(ctx context.Context, e *errand) bool {
	for {
		ahead := s.ahead(e)
		if ahead == nil {
			return true
		}
		select {
		case <-ahead:
		case <-ctx.Done():
			return false
		}
	}
}

// outcome waits for a release that is somebody else's errand, until ctx ends.
func (s *Store) outcome(ctx context.Context, e *errand) (bool, error) {
	s.mu.Lock()
	over := e.waitFor()
	s.mu.Unlock()
	select {
	case <-over:
		return e.ended, e.err
	case <-ctx.Done():
		return false, errNoAnswer
	}
}

// send marks an errand as sent. It reports false if an acquisition has been
// skipped, and true of a release if somebody else relies on it. If a release of
// the owner may be on its way to the node, doubt is until when.
func (s *Store) send(c *claim, node int, e *errand) (ok bool, doubt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &c.lanes[node]
	if !l.doubtUntil.IsZero() && time.Now().Before(l.doubtUntil) {
		doubt = l.doubtUntil
	}
	switch {
	case e.kind != acquisition:
		l.mark(e)
		return e.needed, doubt
	case e.skipped:
		return false, doubt
	case doubt.IsZero():
		l.mark(e)
	default:
		e.sent = true // A release is sent in its place.
	}
	return true, doubt
}

// skip takes an acquisition out of its lane, and reports false if it was sent.
// The caller holds Store.mu.
func (e *errand) skip() bool {
	if !e.sent && !e.skipped {
		e.skipped = true
		e.end()
	}
	return !e.sent
}

// finish ends the errand and lets the next one begin.
func (s *Store) finish(c *claim, e *errand) {
	s.mu.Lock()
	if !e.skipped {
		e.ahead = nil
		e.end()
	}
	next := e.next
	s.leave(c)
	s.mu.Unlock()
	if next != nil {
		next()
	}
}
