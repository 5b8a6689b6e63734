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

// recordSent records what is open after a request has been sent, or a release in its place: the hold
// that an acquisition may have left, and the doubt about a release. A release that is
// not confirmed, or may precede the acquisition that it undoes, is sent again after a pause, in its
// turn. It is not if the owner has made another request at this node since, or if resendLimit
// releases wait. The caller holds s.mu.
func (s *engine) recordSent(n *node, r, sent *nodeRequest, got reply, err error) {
	o, q := r.owner, &r.owner.queues[n.index]
	unknown := err != nil && !driver.IsNotApplied(err)
	if sent.acquire != nil {
		r.mayHold = unknown || err == nil && got.Granted
		q.unknown = q.unknown || unknown
		return
	}
	switch {
	case err == nil && !q.doubtUntil.IsZero():
		if soon := time.Now().Add(s.timeout); soon.Before(q.doubtUntil) {
			q.doubtUntil = soon
		}
	case unknown && s.doubts < doubtLimit:
		s.doubts++
		o.refs++
		q.doubtUntil = time.Now().Add(doubtTime)
		time.AfterFunc(doubtTime, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.doubts--
			s.unrefOwner(o)
		})
	}
	late := err == nil && !got.released && q.unknown
	confirmed := err == nil && !late || driver.Permanent(err)
	if r.acquire != nil || confirmed || r.resent == len(resendAfter) || n.resends == resendLimit {
		return
	}
	pause := resendAfter[r.resent]
	again := &nodeRequest{owner: o, release: r.release, resent: r.resent + 1, sentAs: r.sentAs}
	if again.release.Keep > 0 {
		again.release.Keep = max(again.release.Keep-pause, driver.MinTTL)
	}
	n.resends++
	o.refs++
	time.AfterFunc(pause, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		n.resends--
		s.enqueue(n, again)
		s.unrefOwner(o)
	})
}

// releasingNodes reports at which nodes a release of the owner is under way, or may be. To renew a
// hold there is of no use. It returns nil if there is no such node.
func (s *engine) releasingNodes(name, owner string) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[[2]string{name, owner}]
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
