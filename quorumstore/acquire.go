package quorumstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

const (
	// maxRounds is the maximum number of rounds of one Acquire.
	maxRounds = 10

	// basePause is the upper bound of the random pause after the first vote without a winner, and
	// the time that a node may take longer than a majority to decide it. It doubles.
	basePause = 2 * time.Millisecond
)

// Acquire implements [olddriver.Store]. It returns as soon as the votes decide the attempt. A grant
// that comes later makes the hold stronger, or is released again. Grants that a failed attempt is
// known to have are released before Acquire returns, also if this owner has them from an earlier
// attempt; if ctx or the Store ends first, they are released in the background.
//
// A vote without a winner (the nodes are divided among contenders, or granted different tokens) is
// repeated a few times, after a random pause. If less than a majority replied, the error is an
// [Error]. It is returned at once if so many nodes refused the attempt that the others cannot make
// a majority, and after Options.Timeout if that depends on nodes that do not reply. If nodes that
// cannot serve now would make a majority, it is a [driver.RetryError] around the Error, with the
// time after which they will.
//
// A request with Queue gets no place and no notices: its owner tries again.
//
// Requests under way are awaited, to the deadline of ctx and for Options.Timeout at most. The
// cancellation of ctx ends the pauses between them.
func (s *engine) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	s.calls.Add(1) // Close waits for grants that have to be released.
	defer s.doneCall()
	if err := s.checkUsable(ctx); err != nil {
		return olddriver.AcquireResult{}, err
	}
	if req.Claim {
		return olddriver.AcquireResult{}, fmt.Errorf("%w by a quorum: nodes may admit different owners", driver.ErrUnsupported)
	}
	if req.Limit > 0 {
		return olddriver.AcquireResult{}, fmt.Errorf("%w by a quorum: N nodes with Limit L admit up to N*L/(N/2+1) holders, "+
			"3 for a Limit of 2 on 3 nodes", driver.ErrUnsupported)
	}
	if req.Limit < 0 {
		return olddriver.AcquireResult{}, fmt.Errorf("%w by a quorum: shared requests that cross get different tokens on different nodes",
			driver.ErrUnsupported)
	}
	req.Queue = 0
	if len(s.nodes) == 1 {
		return s.acquireAlone(ctx, req)
	}
	unlock, err := s.lockOwner(ctx, req.Name, req.Owner)
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	defer unlock()
	floor := req.Floor
	req.Floor = s.floorFor(floor)
	var seen olddriver.Record
	for n := 1; ; n++ {
		r := s.newRound(req)
		outcome, token, cut := r.collectVotes(ctx, basePause<<(n-1))
		if outcome == verdictWon {
			return olddriver.AcquireResult{Granted: true, Token: token}, nil
		}
		if outcome == verdictBusy && !r.confirmsHold(&seen) {
			outcome = verdictSplit
		}
		waitUndone, took := r.undo(ctx), time.Since(r.began)
		switch {
		case cut != nil && outcome != verdictBusy:
			return olddriver.AcquireResult{}, r.acquireError("cut short", cut)
		case outcome == verdictBusy || outcome == verdictUnavailable || n >= maxRounds:
			return r.finalResult(outcome, waitUndone())
		}
		if outcome == verdictSplit || n > 1 {
			pause := max(basePause, took) << (n - 1)
			if err := s.sleep(ctx, rand.N(min(pause, s.timeout))+1); err != nil {
				return olddriver.AcquireResult{}, r.acquireError("cut short", err)
			}
		}
		req.Floor = s.floorFor(floor)
		if outcome == verdictTokenMismatch {
			req.Floor = s.raisedFloor(floor, r.greatestToken(), took)
		}
	}
}

// lockOwner waits until no other Acquire of an owner is under way: the releases of one must not end
// what another was granted.
func (s *engine) lockOwner(ctx context.Context, name, owner string) (unlock func(), err error) {
	s.mu.Lock()
	o := s.refOwner(name, owner)
	s.mu.Unlock()
	select {
	case o.acquiring <- struct{}{}:
	default: // ctx.Done may cost a timer
		select {
		case o.acquiring <- struct{}{}:
		case <-ctx.Done():
			err = driver.NotApplied(ctx.Err())
		case <-s.closing.Done():
			err = driver.ErrClosed
		}
	}
	unlock = func() {
		if err == nil {
			<-o.acquiring
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unrefOwner(o)
	}
	if err != nil {
		unlock()
	}
	return unlock, err
}

// confirmsHold reports whether the blocking hold is certainly one hold. Two owners with one public
// holder can be granted the same token on different nodes, for a moment, and then look like one
// hold. A hold with the public holder of this owner therefore counts only if the round before
// reported it, too. seen records that.
func (r *round) confirmsHold(seen *olddriver.Record) bool {
	rec, _ := r.blockingHold()
	before := *seen
	*seen = rec
	return rec.Holder != r.req.Holder || sameHold(rec, before)
}

// finalResult returns the result of an attempt that has failed. undone reports whether all grants
// have been released.
func (r *round) finalResult(outcome verdict, undone bool) (olddriver.AcquireResult, error) {
	var none olddriver.AcquireResult
	switch outcome {
	case verdictLate:
		return none, r.acquireError("granted too late to be relied on", nil)
	case verdictTokenMismatch:
		return none, r.acquireError("the tokens granted do not agree", nil)
	case verdictUnavailable:
		return none, r.unreachableError(undone)
	}
	return olddriver.AcquireResult{Held: r.describeRefusal()}, nil
}

// acquireAlone forwards an attempt to the only node. After an error, what the node has is open.
func (s *engine) acquireAlone(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	r := s.newRound(req)
	_, _, err := r.collectVotes(ctx, 0)
	v := r.votes[0]
	if err != nil || !v.cast || v.err != nil {
		return olddriver.AcquireResult{}, r.acquireError("not acquired", err)
	}
	return olddriver.AcquireResult{Granted: v.granted, Token: v.token, Held: v.held}, nil
}
