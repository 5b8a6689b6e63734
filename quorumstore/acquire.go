package quorumstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxRounds is how often one Acquire asks the nodes, at most.
	maxRounds = 10

	// firstPause bounds the pause after the first vote that nobody won, and the
	// time that a node can take longer than a majority to decide it. It doubles.
	firstPause = 2 * time.Millisecond
)

// Acquire implements [driver.Store]. It answers as soon as the votes decide it,
// for or against; a grant that comes later makes the hold stronger, or is given
// back. What a failed attempt is known to have been granted is given back before
// the answer, also if this owner has had it from an earlier attempt.
//
// A vote that nobody won (contenders have the nodes among them, or the nodes
// granted different tokens) is held again a few times, after a pause at
// random. If less than a majority answered the error is an [Error].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.beginCall() // Close waits for what has to be given back.
	defer s.doneCall()
	if err := s.usable(ctx); err != nil {
		return driver.AcquireResult{}, err
	}
	if len(s.nodes) == 1 {
		return s.acquireAlone(ctx, req)
	}
	c := s.claim(req.Name, req.Owner)
	defer s.unclaim(c)
	if err := s.turn(ctx, c); err != nil {
		return driver.AcquireResult{}, err
	}
	defer s.next(c)

	asked := req.Floor
	req.Floor = s.floor(asked)
	var seen driver.Record
	for n := 1; ; n++ {
		r := s.newRound(ctx, c, req)
		outcome, token, cut := r.hold(firstPause << (n - 1))
		if outcome == won {
			return driver.AcquireResult{Granted: true, Token: token}, nil
		}
		if outcome == busy && !r.confirms(&seen) {
			outcome = split
		}
		undone := r.undo()
		if cut != nil {
			return driver.AcquireResult{}, r.fail("cut short", cut)
		}
		if outcome == busy || outcome == unavailable || n == maxRounds {
			undone.wait(ctx)
			return r.conclude(outcome)
		}
		took := time.Since(r.began)
		if outcome == split || n > 1 {
			pause := max(firstPause, took) << (n - 1)
			if err := s.pause(ctx, rand.N(min(pause, s.timeout))+1); err != nil {
				return driver.AcquireResult{}, r.fail("cut short", err)
			}
		}
		req.Floor = s.floor(asked)
		if outcome == disunited {
			req.Floor = s.raise(asked, r.greatest(), took)
		}
	}
}

// confirms reports whether the hold in the way is one hold beyond doubt. Holds of
// different owners are told apart by their public holders. Contenders who share
// ours can have the same token on different nodes, for a moment: such a hold must
// have been there in the round before, too, which is remembered in seen.
func (r *round) confirms(seen *driver.Record) bool {
	rec, _ := r.inTheWay()
	before := *seen
	*seen = rec
	return rec.Holder != r.req.Holder || sameHold(rec, before)
}

// conclude is the answer to an attempt that has failed.
func (r *round) conclude(outcome verdict) (driver.AcquireResult, error) {
	var none driver.AcquireResult
	switch outcome {
	case late:
		return none, r.fail("granted too late to be relied on", nil)
	case disunited:
		return none, r.fail("the tokens granted do not agree", nil)
	case unavailable:
		return none, r.fail("no majority answered", nil)
	}
	return driver.AcquireResult{Held: r.refusal()}, nil
}

// acquireAlone passes an attempt on to the only node there is.
func (s *Store) acquireAlone(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	c := s.claim(req.Name, req.Owner)
	defer s.unclaim(c)
	r := s.newRound(ctx, c, req)
	var res driver.AcquireResult
	err := r.canvass.hear(func(a answer[driver.AcquireResult]) bool {
		r.votes[0] = vote{cast: true, err: a.err}
		res = a.value
		return true
	})
	if err != nil || !r.votes[0].cast || r.votes[0].err != nil {
		return driver.AcquireResult{}, r.fail("not acquired", err)
	}
	return res, nil
}

// validity is for how long after asking a TTL may be relied on, as package
// holdfast reckons it: drift of the clocks against each other is taken off.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
