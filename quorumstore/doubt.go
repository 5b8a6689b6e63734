package quorumstore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A release that a node did not confirm may still be on its way, and end a hold
// that the same owner is granted meanwhile. So the node has no vote on this
// owner while that is in doubt: until it has confirmed a release that was sent
// later, and the time for stragglers is over; if it never does, for doubtTime.
const doubtTime = 10 * time.Second

// doubtLimit bounds what is kept of doubts. It is reached only when thousands of
// releases a second are not confirmed. Later ones are then taken for lost, not
// for late.
const doubtLimit = 1 << 14

// doubt notes that a node did not confirm a release.
func (s *Store) doubt(c *claim, node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doubts == doubtLimit {
		return
	}
	s.doubts++
	c.lanes[node].doubtUntil = time.Now().Add(doubtTime)
	c.users++
	time.AfterFunc(doubtTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.doubts--
		s.leave(c)
	})
}

// fading reports at which nodes whatever the owner has is about to end, or may
// be, by a release that is under way: of an earlier attempt, or his own. To renew
// it there is of no use. It returns nil for none.
func (s *Store) fading(name, owner string) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimKey{name, owner}]
	if c == nil {
		return nil
	}
	nodes := make([]bool, len(s.nodes))
	for i := range c.lanes {
		l := &c.lanes[i]
		nodes[i] = time.Now().Before(l.doubtUntil)
		for e := l.last.inForce(); e != nil; e = e.ahead.inForce() {
			nodes[i] = nodes[i] || e.kind != acquisition
		}
	}
	return nodes
}

// dispel notes that a node has confirmed a release, which was sent when the
// doubt was until then.
func (s *Store) dispel(c *claim, node int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &c.lanes[node]
	if soon := time.Now().Add(s.timeout); l.doubtUntil.Equal(until) && soon.Before(until) {
		l.doubtUntil = soon
	}
}

// confirm sends a release to a node that may have one on its way, if there is a
// doubt until then, and reports why it was not confirmed.
func (s *Store) confirm(ctx context.Context, n *node, c *claim, doubt time.Time, req driver.ReleaseRequest) (bool, error) {
	ended, err := ask(ctx, n, func(ctx context.Context) (bool, error) { return n.Release(ctx, req) })
	s.judge(n, c, doubt, err)
	return ended, err
}

// judge notes what the end of a release says of doubts, if there was one until
// then when it was sent.
func (s *Store) judge(n *node, c *claim, doubt time.Time, err error) {
	switch {
	case err == nil && !doubt.IsZero():
		s.dispel(c, n.index, doubt)
	case err == nil:
	case !driver.NotApplied(err):
		s.doubt(c, n.index)
	}
}

// repeatAfter are the pauses before a release that was not confirmed is sent
// again in the background. After that the TTL has to do.
var repeatAfter = []time.Duration{250 * time.Millisecond, time.Second}

// repeat sends a release that a node did not confirm again in the background,
// as long as not too many are, and the owner has not asked this node for the
// name again. It takes its place in the lane like every other.
func (s *Store) repeat(n *node, c *claim, req driver.ReleaseRequest) {
	if n.repeats.Add(1) > repeatLimit {
		n.repeats.Add(-1)
		return
	}
	before := s.retain(c, n.index)
	s.begin(n)
	go func() {
		defer s.done(n)
		defer n.repeats.Add(-1)
		defer s.unclaim(c)
		for _, pause := range repeatAfter {
			if s.pause(context.Background(), pause) != nil {
				return
			}
			if req.Keep > 0 {
				req.Keep = max(req.Keep-pause, driver.MinTTL)
			}
			if s.repeatOnce(n, c, req, before) {
				return
			}
		}
	}()
}

// repeatOnce reports whether there is nothing left to repeat.
func (s *Store) repeatOnce(n *node, c *claim, req driver.ReleaseRequest, before int) bool {
	p := s.queue(c, kindOf(req), func(node int) bool { return node == n.index })[n.index]
	if p.joined {
		s.unclaim(c)
		return true
	}
	defer s.finish(c, p.errand)
	if !s.await(s.alive, p.errand) {
		p.err = driver.ErrClosed
		return true
	}
	needed, doubt := s.send(c, n.index, p.errand)
	if !needed && s.asked(c, n.index) != before {
		return true
	}
	p.ended, p.err = s.confirm(s.limit().node, n, c, doubt, req)
	return p.err == nil || driver.Permanent(p.err)
}

// retain makes one use more of a claim, and returns how often it has asked the
// node for the name.
func (s *Store) retain(c *claim, node int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.users++
	return c.lanes[node].asked
}

// asked returns how often the claim has asked a node for the name.
func (s *Store) asked(c *claim, node int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.lanes[node].asked
}
