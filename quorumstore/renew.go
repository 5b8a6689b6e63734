package quorumstore

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Renew implements [olddriver.Store]: one request to each node for the whole batch. A hold is Renewed
// if a majority of the nodes renewed it, and RenewLost if so many no longer have it that no
// majority can; the rest of it is then released. If nodes contradict each other without deciding
// it, they get a second request, since the hold may just have ended in between. Else the outcome is
// RenewUnknown and the error an [Error] about the first such hold.
//
// A node outside the majority that has agreed on a token may have granted another one. Its part of
// the hold counts, too: the second request has no tokens, nor have those to a node that has once
// refused a token which a majority has renewed.
//
// A node that has lost a hold does not get it back: see the package comment.
func (s *engine) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	// A node may still read the requests after the caller has gone on.
	outcomes, unclear, err := s.renew(ctx, slices.Clone(reqs))
	if err != nil && len(unclear) > 0 {
		again := make([]olddriver.RenewRequest, len(unclear))
		for i, at := range unclear {
			again[i] = reqs[at]
			again[i].Token = 0
		}
		var second []olddriver.RenewOutcome
		second, _, err = s.renew(ctx, again)
		for i, at := range unclear {
			outcomes[at] = second[i]
		}
	}
	return outcomes, err
}

// errNoOutcome is the vote of a node on a hold that its reply leaves out.
var errNoOutcome = errors.New("the node gave no outcome")

// renew sends one request to each node. Of the unknown outcomes, unclear are those on which the
// nodes contradict each other.
func (s *engine) renew(ctx context.Context, reqs []olddriver.RenewRequest) (outcomes []olddriver.RenewOutcome, unclear []int, err error) {
	renewed, lost := make([]int, len(reqs)), make([]int, len(reqs)) // how many nodes
	releasing := make([][]bool, len(reqs))
	for i, req := range reqs {
		releasing[i] = s.releasingNodes(req.Name, req.Owner)
	}
	outcome := func(i int) olddriver.RenewOutcome {
		switch {
		case renewed[i] >= s.need:
			return olddriver.Renewed
		case lost[i] > len(s.nodes)-s.need:
			return olddriver.RenewLost
		}
		return olddriver.RenewUnknown
	}
	undecided := len(reqs)
	f := newFanOut[[]olddriver.RenewOutcome](ctx, s, s.timeout)
	f.count = func(node int, votes []olddriver.RenewOutcome, _ error) bool {
		for i, vote := range votes[:min(len(votes), len(reqs))] {
			before := outcome(i)
			switch {
			case vote == olddriver.RenewLost, vote == olddriver.Renewed && releasing[i] != nil && releasing[i][node]:
				lost[i]++
			case vote == olddriver.Renewed:
				renewed[i]++
			}
			if before == olddriver.RenewUnknown && outcome(i) != olddriver.RenewUnknown {
				undecided--
			}
		}
		return undecided == 0
	}
	f.late = func(node int, votes []olddriver.RenewOutcome) {
		for i, req := range reqs {
			lostThere := i < len(votes) && votes[i] == olddriver.RenewLost
			switch decided := outcome(i); {
			case decided == olddriver.RenewLost && !lostThere:
				s.releaseRest(s.nodes[node], req.Name, req.Owner)
			case decided == olddriver.Renewed && lostThere && req.Token != 0:
				s.nodes[node].otherTokens.Store(true)
			}
		}
	}
	plain := slices.Clone(reqs)
	for i := range plain {
		plain[i].Token = 0
	}
	f.send(func(ctx context.Context, n *node) ([]olddriver.RenewOutcome, error) {
		if n.otherTokens.Load() {
			return n.Renew(ctx, plain)
		}
		return n.Renew(ctx, reqs)
	})
	cut := f.wait(ctx)
	for node, votes := range f.values {
		if f.errs[node] != errNoReply {
			f.late(node, votes)
		}
	}
	outcomes = make([]olddriver.RenewOutcome, len(reqs))
	for i := range outcomes {
		outcomes[i] = outcome(i)
		if outcomes[i] != olddriver.RenewUnknown {
			continue
		}
		if cut == nil && renewed[i] > 0 && lost[i] > 0 {
			unclear = append(unclear, i)
		}
		if err == nil {
			err = s.quorumError("no majority confirmed the entry", cut, func(n *node) Vote {
				return renewVote(f.values[n.index], f.errs[n.index], i)
			})
		}
	}
	return outcomes, unclear, err
}

// releaseRest releases what a node may have of a lost hold.
func (s *engine) releaseRest(n *node, name, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.refOwner(name, owner)
	s.enqueue(n, &nodeRequest{release: olddriver.ReleaseRequest{Name: name, Owner: owner}, owner: o})
	s.unrefOwner(o)
}

// renewVote returns the vote of a node on one hold of the batch. An error can come with outcomes.
func renewVote(outcomes []olddriver.RenewOutcome, err error, i int) Vote {
	switch {
	case i < len(outcomes) && outcomes[i] == olddriver.Renewed:
		return Vote{Answer: "renewed"}
	case i < len(outcomes) && outcomes[i] == olddriver.RenewLost:
		return Vote{Answer: "lost"}
	case err != nil:
		return Vote{Err: err}
	}
	return Vote{Err: errNoOutcome}
}
