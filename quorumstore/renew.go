package quorumstore

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
)

// Renew implements [driver.Store]: one request to each node for the whole batch. A hold is Renewed
// if a majority of the nodes renewed it, and RenewLost if so many no longer have it that no
// majority can; the rest of it is then released. If nodes contradict each other without deciding
// it, they get a second request, since the hold may just have ended in between. Else the outcome is
// RenewUnknown and the error an [Error] about the first such hold.
//
// A node that has lost a hold does not get it back: see the package comment.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	// A node may still read the requests after the caller has gone on.
	outcomes, unclear, err := s.renew(ctx, slices.Clone(reqs))
	if err != nil && len(unclear) > 0 {
		again := make([]driver.RenewRequest, len(unclear))
		for i, at := range unclear {
			again[i] = reqs[at]
		}
		var second []driver.RenewOutcome
		second, _, err = s.renew(ctx, again)
		for i, at := range unclear {
			outcomes[at] = second[i]
		}
	}
	for i, outcome := range outcomes {
		if outcome == driver.RenewLost {
			s.releaseLost(reqs[i])
		}
	}
	return outcomes, err
}

// renew sends one request to each node. Of the unknown outcomes, unclear are those on which the
// nodes contradict each other.
func (s *Store) renew(ctx context.Context, reqs []driver.RenewRequest) (outcomes []driver.RenewOutcome, unclear []int, err error) {
	t := &renewalTally{
		s:         s,
		counts:    make([]renewCount, len(reqs)),
		undecided: len(reqs),
		releasing: make([][]bool, len(reqs)),
	}
	for i, req := range reqs {
		t.releasing[i] = s.releasingNodes(req.Name, req.Owner)
	}
	f := newFanOut[[]driver.RenewOutcome](ctx, s, s.timeout)
	f.count = t.addReply
	f.send(func(ctx context.Context, n *node) ([]driver.RenewOutcome, error) {
		return n.Renew(ctx, reqs)
	})
	cut := f.wait(ctx)
	outcomes = make([]driver.RenewOutcome, len(reqs))
	for i, votes := range t.counts {
		outcomes[i] = t.outcome(i)
		if outcomes[i] != driver.RenewUnknown {
			continue
		}
		if cut == nil && votes.renewed > 0 && votes.lost > 0 {
			unclear = append(unclear, i)
		}
		if err == nil {
			err = s.quorumError("renewal not confirmed", cut, func(n *node) Vote { return renewVote(f.values[n.index], f.errs[n.index], i) })
		}
	}
	return outcomes, unclear, err
}

var errNoOutcome = errors.New("the node gave no outcome")

// A renewalTally counts the votes on a batch.
type renewalTally struct {
	s         *Store
	counts    []renewCount
	undecided int      // holds that are not decided yet
	releasing [][]bool // see Store.releasingNodes
}

type renewCount struct{ renewed, lost int }

// addReply counts the reply of a node, and reports whether all holds are decided.
func (t *renewalTally) addReply(node int, outcomes []driver.RenewOutcome, _ error) bool {
	for i, outcome := range outcomes[:min(len(outcomes), len(t.counts))] {
		before := t.outcome(i)
		switch outcome {
		case driver.Renewed:
			if t.releasing[i] != nil && t.releasing[i][node] {
				t.counts[i].lost++
			} else {
				t.counts[i].renewed++
			}
		case driver.RenewLost:
			t.counts[i].lost++
		}
		if before == driver.RenewUnknown && t.outcome(i) != driver.RenewUnknown {
			t.undecided--
		}
	}
	return t.undecided == 0
}

func (t *renewalTally) outcome(i int) driver.RenewOutcome {
	switch n := t.counts[i]; {
	case n.renewed >= t.s.need:
		return driver.Renewed
	case n.lost > len(t.s.nodes)-t.s.need:
		return driver.RenewLost
	}
	return driver.RenewUnknown
}

// renewVote returns the vote of a node on one hold of the batch. An error can come with outcomes.
func renewVote(outcomes []driver.RenewOutcome, err error, i int) Vote {
	switch {
	case i < len(outcomes) && outcomes[i] == driver.Renewed:
		return Vote{Answer: "renewed"}
	case i < len(outcomes) && outcomes[i] == driver.RenewLost:
		return Vote{Answer: "lost"}
	case err != nil:
		return Vote{Err: err}
	}
	return Vote{Err: errNoOutcome}
}

// releaseLost releases the part of a lost hold that a minority of the nodes still has, in the
// background.
func (s *Store) releaseLost(lost driver.RenewRequest) {
	release := driver.ReleaseRequest{Name: lost.Name, Owner: lost.Owner}
	s.enqueueAll(lost.Name, lost.Owner, quorumbatch.Request{Release: release},
		newFanOut[*quorumbatch.Request](context.Background(), s, s.timeout))
}
