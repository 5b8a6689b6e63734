package quorumstore

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A release that a node did not confirm may still be on its way, and end a hold that the same owner
// is granted meanwhile. So the node has no vote on this owner while that is in doubt: until it has
// confirmed a release that was sent later, and the time for stragglers is over; if it never does,
// for doubtTime.
const doubtTime = 10 * time.Second

// doubtLimit bounds what is kept of doubts. It is reached only when thousands of releases a second
// are not confirmed. Later ones are then taken for lost, not for late.
const doubtLimit = 1 << 14

// resendAfter are the pauses before a release that was not confirmed is sent again in the
// background. After that the TTL has to do.
var resendAfter = []time.Duration{250 * time.Millisecond, time.Second}

// updateDoubt shortens the doubt about a node after a release that it has confirmed, and records a
// doubt after one that it has not. before is the doubt when the release was sent.
func (s *Store) updateDoubt(o *ownerState, n *node, before time.Time, err error) {
	if err == nil && before.IsZero() || driver.IsNotApplied(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &o.queues[n.index]
	switch {
	case err == nil:
		if soon := time.Now().Add(s.timeout); q.doubtUntil.Equal(before) && soon.Before(before) {
			q.doubtUntil = soon
		}
	case s.doubts < doubtLimit:
		s.doubts++
		o.refs++
		q.doubtUntil = time.Now().Add(doubtTime)
		time.AfterFunc(doubtTime, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.doubts--
			s.unrefLocked(o)
		})
	}
}

// mayStillArrive reports whether the node may execute an acquisition of the owner that has ended
// without a reply.
func (s *Store) mayStillArrive(o *ownerState, n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.queues[n.index].unknown
}

// resendLater sends a release again after a pause, in its turn. It does not if the owner has made
// another request at this node since, or if resendLimit releases wait.
func (s *Store) resendLater(n *node, r *nodeRequest) {
	if r.resent == len(resendAfter) {
		return
	}
	if n.resends.Add(1) > resendLimit {
		n.resends.Add(-1)
		return
	}
	pause := resendAfter[r.resent]
	o := r.owner
	again := &nodeRequest{owner: o, release: r.release, resent: r.resent + 1, place: r.place}
	if again.release.Keep > 0 {
		again.release.Keep = max(again.release.Keep-pause, driver.MinTTL)
	}
	s.mu.Lock()
	o.refs++
	s.mu.Unlock()
	time.AfterFunc(pause, func() {
		n.resends.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.enqueue(n, again)
		s.unrefLocked(o)
	})
}

// releasingNodes reports at which nodes a release of the owner is under way, or may be. To renew a
// hold there is of no use. It returns nil if there is no such node.
func (s *Store) releasingNodes(name, owner string) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[ownerKey{name, owner}]
	if o == nil {
		return nil
	}
	releasing := make([]bool, len(s.nodes))
	for i, q := range o.queues {
		releasing[i] = time.Now().Before(q.doubtUntil) || q.current != nil && q.current.acquire == nil
		for _, r := range q.waiting {
			releasing[i] = releasing[i] || r.acquire == nil
		}
	}
	return releasing
}
