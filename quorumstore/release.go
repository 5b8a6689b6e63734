package quorumstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Store]. It goes to every node, and reports true as
// soon as a majority has ended the hold, and false as soon as so many did not
// have it that no majority did. If neither comes to be known, but a majority
// has answered, the hold is over, and since it may have had a majority it
// reports true. Else, or if the name should be kept and no majority keeps it,
// the error is an [Error].
//
// Nodes that do not confirm are told again in the background for a second or
// two. After that their part of the hold ends with its TTL: a minority, which
// keeps nobody out as long as the other nodes answer.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	k := kindOf(req)
	if k == keep && !s.can.Keep {
		return false, fmt.Errorf("%w: a node cannot keep a name", driver.ErrUnsupported)
	}
	c := s.claim(req.Name, req.Owner)
	defer s.unclaim(c)
	places := s.enter(c, k)
	answers := make([]answer[bool], len(s.nodes))
	for i := range answers {
		answers[i].err = errNoAnswer
	}
	ended, without := 0, 0
	p := poll(ctx, s, func(ctx context.Context, n *node) (bool, error) {
		return s.releaseInTurn(ctx, n, c, places[n.index], nil, req)
	})
	p.start = func(n *node) bool { return s.startRelease(p, n, c, &places[n.index], req) }
	err := p.hear(func(a answer[bool]) bool {
		answers[a.node] = a
		switch {
		case a.err != nil:
		case a.value:
			ended++
		default:
			without++
		}
		return ended >= s.need || without > len(s.nodes)-s.need
	})
	switch {
	case ended >= s.need, k == release && ended+without >= s.need && without <= len(s.nodes)-s.need:
		return true, nil
	case without > len(s.nodes)-s.need:
		return false, nil
	}
	return false, s.fail("not confirmed", err, func(n *node) Vote {
		switch a := answers[n.index]; {
		case a.err != nil:
			return Vote{Err: a.err}
		case a.value:
			return Vote{Answer: "released"}
		}
		return Vote{Answer: "not held"}
	})
}

// startRelease releases the hold of an owner at a node without waiting for it, if
// that can be done: at once, or when an acquisition under way is over.
func (s *Store) startRelease(by *canvass[bool], n *node, c *claim, p *place, req driver.ReleaseRequest) bool {
	switch {
	case p.begun:
		s.beginRelease(by.ctx, by, n, c, p, req)
	case p.behind != nil:
		s.follow(p.behind, func() {
			s.mu.Lock()
			c.lanes[n.index].mark(p.errand)
			s.mu.Unlock()
			s.beginRelease(limited{s.limit().node, by.caller}, by, n, c, p, req) // The caller's time may be over.
		})
	default:
		return false
	}
	return true
}

func (s *Store) beginRelease(ctx context.Context, by *canvass[bool], n *node, c *claim, p *place, req driver.ReleaseRequest) {
	n.ask()
	n.starter.StartRelease(ctx, req, func(ended bool, err error) {
		n.answer(ctx, err)
		p.ended, p.err = ended, err
		s.released(n, c, time.Time{}, req, err)
		s.finish(c, p.errand)
		by.arrive(n, ended, err)
	})
}

// releaseInTurn releases the hold of an owner at a node, when what is ahead of
// it in the lane is over. If it undoes an acquisition that certainly has left
// nothing, nothing is sent.
func (s *Store) releaseInTurn(ctx context.Context, n *node, c *claim, p place, undoes *errand, req driver.ReleaseRequest) (bool, error) {
	if p.joined {
		defer s.unclaim(c)
		return s.outcome(ctx, p.errand)
	}
	defer s.finish(c, p.errand)
	if undoes != nil || s.ahead(p.errand) != nil {
		// It must be done, even if the caller's time is over by then.
		if !s.await(s.alive, p.errand) {
			p.err = driver.ErrClosed
			return false, p.err
		}
		ctx = limited{s.limit().node, ctx}
	}
	needed, doubt := s.send(c, n.index, p.errand)
	if undoes != nil && !undoes.leaves && !needed {
		return false, nil
	}
	p.ended, p.err = ask(ctx, n, func(ctx context.Context) (bool, error) { return n.Release(ctx, req) })
	s.released(n, c, doubt, req, p.err)
	return p.ended, p.err
}

// released draws the conclusions from how a release at a node has ended, which was
// sent when there was a doubt until then.
func (s *Store) released(n *node, c *claim, doubt time.Time, req driver.ReleaseRequest, err error) {
	s.judge(n, c, doubt, err)
	if err != nil && !driver.Permanent(err) {
		s.repeat(n, c, req)
	}
}
