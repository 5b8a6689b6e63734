package quorumstore

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A waiter is an owner that gets Ask notices for a name, as AcquireRequest.Queue requests. It joins
// the notices of the nodes. It is guarded by Store.mu.
type waiter struct {
	state      *ownerState
	until      time.Time
	expiry     *time.Timer  // ends the wait
	nodes      []waiterNode // by index
	last       time.Time    // the last notice
	askPending bool         // a notice is scheduled
}

// A waiterNode is what a waiter has of one node.
type waiterNode struct {
	queued    bool      // the node sends notices, by its last answer
	noticedAt time.Time // when it sent a notice; zero if none since the last one of the waiter
}

const (
	// staleNotice is how long the notice of a node counts.
	staleNotice = time.Second

	// noticeGap is the least time between two notices of a waiter. A failed attempt of another owner
	// causes notices, too, and attempts must not trigger each other.
	noticeGap = 5 * time.Millisecond
)

// prolongWaiter prolongs the wait of an owner, and reports whether it waits. If it does not, begin
// makes it wait. It comes before the nodes get the request: their notices may come before their
// replies.
func (s *Store) prolongWaiter(req *driver.AcquireRequest, begin bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.refOwner(req.Name, req.Owner)
	w := o.waiter
	switch {
	case w == nil && !begin:
		s.unrefOwner(o)
		return false
	case w == nil:
		w = &waiter{state: o, nodes: make([]waiterNode, len(s.nodes))}
		w.expiry = time.AfterFunc(req.Queue, func() { s.expireWaiter(w) })
		o.waiter = w // It keeps the reference.
		s.waiters[req.Name] = append(s.waiters[req.Name], w)
	default:
		s.unrefOwner(o)
	}
	if until := time.Now().Add(req.Queue); until.After(w.until) {
		w.until = until
		w.expiry.Reset(req.Queue)
	}
	return true
}

// expireWaiter ends a wait that was not prolonged.
func (s *Store) expireWaiter(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.state.waiter == w && !time.Now().Before(w.until) {
		s.endWaiter(w.state)
	}
}

// endWaiter ends the wait of an owner, if there is one. The caller holds s.mu.
func (s *Store) endWaiter(o *ownerState) {
	if o == nil || o.waiter == nil {
		return
	}
	w, name := o.waiter, o.key[0]
	o.waiter = nil
	w.expiry.Stop()
	if rest := slices.DeleteFunc(s.waiters[name], func(other *waiter) bool { return other == w }); len(rest) > 0 {
		s.waiters[name] = rest
	} else {
		delete(s.waiters, name)
	}
	s.unrefOwner(o)
}

// endWait ends the wait of the owner, which has been granted the name.
func (r *round) endWait() {
	if r.req.Queue == 0 {
		return
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.endWaiter(r.s.owners[[2]string{r.req.Name, r.req.Owner}])
}

// endNotices ends all waits, and the notices of the nodes.
func (s *Store) endNotices() {
	s.mu.Lock()
	for _, waiters := range s.waiters {
		for _, w := range slices.Clone(waiters) {
			s.endWaiter(w.state)
		}
	}
	s.mu.Unlock()
	for _, n := range s.nodes {
		if n.stopNotices != nil {
			n.stopNotices()
		}
	}
}

// isQueued reports whether a majority of the nodes sends notices to the owner, by their votes and
// by the last answers of the others.
func (r *round) isQueued() bool {
	s := r.s
	if r.req.Queue == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[[2]string{r.req.Name, r.req.Owner}]
	if o == nil || o.waiter == nil {
		return false
	}
	queued := 0
	for i, v := range r.votes {
		if v.queued || !v.cast && o.waiter.nodes[i].queued {
			queued++
		}
	}
	return queued >= s.need
}

// recordQueued records whether a node sends notices to the owner, by its answer to a request.
func (w *waiter) recordQueued(n *node, queued bool) {
	w.nodes[n.index].queued = queued
	if !queued {
		w.nodes[n.index].noticedAt = time.Time{}
	}
}

// onNotice passes the notice of a node on to the waiters that it concerns.
func (s *Store) onNotice(n *node, notice driver.Notice) {
	if notice.Kind != driver.Ask {
		return // A hold that one node has lost may still have its majority.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	waiters := s.waiters[notice.Name]
	if notice.Name == "" {
		waiters = slices.Concat(slices.Collect(maps.Values(s.waiters))...)
	}
	for _, w := range waiters {
		if notice.Owner == "" || notice.Owner == w.state.key[1] {
			s.countNotice(w, n)
		}
	}
}

// countNotice counts the notice of a node. It schedules the notice of the waiter when enough nodes
// have sent one for a hold to have lost its majority. A single notice is mostly due to an attempt
// that failed. The caller holds s.mu.
func (s *Store) countNotice(w *waiter, n *node) {
	now, current := time.Now(), w.state.queues[n.index].current
	if !w.nodes[n.index].queued && (current == nil || current.Acquire == nil) {
		return // The notice is for the release of this owner itself.
	}
	w.nodes[n.index].noticedAt = now
	queued, fresh := 0, 0
	for _, own := range w.nodes {
		if own.queued {
			queued++
		}
		if now.Sub(own.noticedAt) < staleNotice {
			fresh++
		}
	}
	// A hold has a majority. At least that many of its nodes send notices:
	if fresh < s.need+queued-len(s.nodes) {
		return
	}
	for i := range w.nodes {
		w.nodes[i].noticedAt = time.Time{}
	}
	if w.askPending {
		return
	}
	w.askPending = true
	time.AfterFunc(noticeGap-now.Sub(w.last), func() {
		s.mu.Lock()
		w.askPending, w.last = false, time.Now()
		over := w.state.waiter != w
		s.mu.Unlock()
		if !over {
			s.notices.Send(driver.Notice{Kind: driver.Ask, Name: w.state.key[0], Owner: w.state.key[1]})
		}
	})
}
