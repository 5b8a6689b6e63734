package quorumstore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A round is one vote on an acquisition.
type round struct {
	ballot
	s       *Store
	c       *claim
	req     driver.AcquireRequest
	began   time.Time
	places  []place
	canvass *canvass[driver.AcquireResult]
}

func (s *Store) newRound(ctx context.Context, c *claim, req driver.AcquireRequest) *round {
	req.Patient = true // Whoever asks the node waits for it, whatever the caller does.
	r := &round{
		ballot: ballot{need: s.need, fenced: s.can.Fencing, votes: make([]vote, len(s.nodes))},
		s:      s,
		c:      c,
		req:    req,
		began:  time.Now(),
		places: s.enter(c, acquisition),
	}
	r.canvass = poll(ctx, s, r.ask)
	r.canvass.start = r.start
	return r
}

// start begins to ask a node whose turn has come.
func (r *round) start(n *node) bool {
	p := &r.places[n.index]
	if !p.begun {
		return false
	}
	ctx := r.canvass.ctx
	n.ask()
	n.starter.StartAcquire(ctx, r.req, func(res driver.AcquireResult, err error) {
		n.answer(ctx, err)
		p.leaves = mayLeave(res, err)
		r.s.finish(r.c, p.errand)
		r.canvass.arrive(n, res, err)
	})
	return true
}

// mayLeave reports whether an acquisition that ended so may have left a hold.
func mayLeave(res driver.AcquireResult, err error) bool {
	return err == nil && res.Granted || err != nil && !driver.NotApplied(err)
}

// Reasons not to ask a node. Nothing was sent.
var (
	errNotSent = notApplied{errors.New("an earlier request is still unanswered")}
	errInDoubt = notApplied{errors.New("an earlier release is not confirmed")}
)

// ask asks one node, when its turn has come.
func (r *round) ask(ctx context.Context, n *node) (driver.AcquireResult, error) {
	var none driver.AcquireResult
	s, e := r.s, r.places[n.index].errand
	defer s.finish(r.c, e)
	if !s.await(ctx, e) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.skip()
		return none, errNotSent
	}
	sent, doubt := s.send(r.c, n.index, e)
	if !sent {
		return none, errNotSent
	}
	if !doubt.IsZero() {
		_, _ = s.confirm(ctx, n, r.c, doubt, driver.ReleaseRequest{Name: r.req.Name, Owner: r.req.Owner})
		return none, errInDoubt
	}
	res, err := ask(ctx, n, func(ctx context.Context) (driver.AcquireResult, error) {
		return n.Acquire(ctx, r.req)
	})
	e.leaves = mayLeave(res, err)
	return res, err
}

// hold holds the vote: it counts until the votes decide. Once a majority has
// answered and it is still open, the others have a period of grace. The error is
// the end of the caller or of the Store.
func (r *round) hold(grace time.Duration) (outcome verdict, token int64, err error) {
	uncast, answered := len(r.votes), 0
	err = r.canvass.hear(func(a answer[driver.AcquireResult]) bool {
		r.votes[a.node] = vote{cast: true, granted: a.value.Granted && a.err == nil, token: a.value.Token, held: a.value.Held, err: a.err}
		uncast--
		if a.err == nil {
			answered++
		}
		if outcome, token = r.count(uncast); outcome != open {
			return true
		}
		if answered >= r.need {
			r.canvass.within(max(grace, time.Since(r.began)))
		}
		return false
	})
	if err == nil && outcome == open { // no more votes are waited for
		outcome, token = r.count(0)
	}
	if outcome == won && time.Since(r.began) >= validity(r.req.TTL) {
		outcome = late
	}
	return outcome, token, err
}

// fail makes the error of an acquisition.
func (r *round) fail(reason string, cause error) error {
	return r.s.fail(reason, cause, func(n *node) Vote {
		if v := r.votes[n.index]; v.cast {
			return v.say()
		}
		return Vote{Err: errNoAnswer}
	})
}
