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

// An errand is the place of one request in a lane.
type errand struct {
	done chan struct{} // closed when it is over, or skipped

	// Guarded by Store.mu.
	ahead   *errand // the one before, nil if there is none
	kind    kind
	sent    bool
	skipped bool // it never will be sent: who is behind waits for who is ahead
	needed  bool // a release that somebody else relies on, too

	// Set before done is closed.
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
	*errand      // nil if there is none
	joined  bool // it is somebody else's errand, and will do for both
}

// queue gives each request that is wanted (nil: one to every node) its place. A
// release joins one of its kind that waits at the end of the lane.
func (s *Store) queue(c *claim, k kind, wanted func(node int) bool) []place {
	places := make([]place, len(s.nodes))
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
			places[i] = place{last, true}
			continue
		}
		l.last = &errand{ahead: last, kind: k, done: make(chan struct{})}
		places[i] = place{errand: l.last}
	}
	return places
}

// inForce returns the first errand, from this one on towards the front, that is
// neither over nor skipped; nil if there is none.
func (e *errand) inForce() *errand {
	for e != nil {
		select {
		case <-e.done:
			e = e.ahead
		default:
			return e
		}
	}
	return nil
}

// ready reports whether it is the errand's turn.
func (s *Store) ready(e *errand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ahead = e.ahead.inForce()
	return e.ahead == nil
}

// await waits for the errand's turn, and reports whether it came before ctx
// ended.
func (s *Store) await(ctx context.Context, e *errand) bool {
	for !s.ready(e) {
		select {
		case <-e.ahead.done: // ahead is changed by nobody else
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// send marks an errand as sent. It reports false if an acquisition has been
// skipped, and true of a release if somebody else relies on it.
func (s *Store) send(e *errand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.kind != acquisition {
		e.sent = true
		return e.needed
	}
	e.sent = !e.skipped
	return e.sent
}

// skip takes an acquisition out of its lane, and reports false if it was sent.
// The caller holds Store.mu.
func (e *errand) skip() bool {
	if !e.sent && !e.skipped {
		e.skipped = true
		close(e.done)
	}
	return !e.sent
}

// finish ends the errand and lets the next one begin.
func (s *Store) finish(c *claim, e *errand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.skipped {
		e.ahead = nil
		close(e.done)
	}
	s.leave(c)
}
