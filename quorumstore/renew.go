package quorumstore

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Store]: one request to each node for the whole
// batch. A hold is Renewed if a majority of the nodes renewed it, and RenewLost
// if so many no longer have it that no majority can; what is left of it is then
// released. Nodes that contradict each other without deciding it are asked a
// second time, since the hold may just have ended in between. Else the outcome
// is RenewUnknown and the error an [Error] about the first such hold.
//
// A node that has lost a hold is not given it back: see the package comment.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	// A node may still look at the requests when the caller has gone on.
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
			s.abandon(reqs[i])
		}
	}
	return outcomes, err
}

// renew asks the nodes once. Of the unknown outcomes, unclear are those on which
// the nodes contradict each other.
func (s *Store) renew(ctx context.Context, reqs []driver.RenewRequest) (outcomes []driver.RenewOutcome, unclear []int, err error) {
	t := &renewals{
		s:      s,
		counts: make([]renewCount, len(reqs)),
		open:   len(reqs),
		nodes:  make([]*answer[[]driver.RenewOutcome], len(s.nodes)),
		fading: make([][]bool, len(reqs)),
	}
	for i, req := range reqs {
		t.fading[i] = s.fading(req.Name, req.Owner)
	}
	cut := poll(ctx, s, func(ctx context.Context, n *node) ([]driver.RenewOutcome, error) {
		return ask(ctx, n, func(ctx context.Context) ([]driver.RenewOutcome, error) { return n.Renew(ctx, reqs) })
	}).hear(t.add)
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
			err = s.fail("renewal not confirmed", cut, func(n *node) Vote { return t.vote(n, i) })
		}
	}
	return outcomes, unclear, err
}

var errNoOutcome = errors.New("the node gave no outcome")

// renewals counts the votes on a batch.
type renewals struct {
	s      *Store
	counts []renewCount
	open   int // holds that are not decided yet
	nodes  []*answer[[]driver.RenewOutcome]
	fading [][]bool // see Store.fading
}

type renewCount struct{ renewed, lost int }

// add counts the answer of a node, and reports whether all is decided.
func (t *renewals) add(a answer[[]driver.RenewOutcome]) bool {
	t.nodes[a.node] = &a
	a.value = a.value[:min(len(a.value), len(t.counts))]
	for i, outcome := range a.value {
		before := t.outcome(i)
		switch outcome {
		case driver.Renewed:
			if t.fading[i] != nil && t.fading[i][a.node] {
				t.counts[i].lost++
			} else {
				t.counts[i].renewed++
			}
		case driver.RenewLost:
			t.counts[i].lost++
		}
		if before == driver.RenewUnknown && t.outcome(i) != driver.RenewUnknown {
			t.open--
		}
	}
	return t.open == 0
}

func (t *renewals) outcome(i int) driver.RenewOutcome {
	switch n := t.counts[i]; {
	case n.renewed >= t.s.need:
		return driver.Renewed
	case n.lost > len(t.s.nodes)-t.s.need:
		return driver.RenewLost
	}
	return driver.RenewUnknown
}

// vote is what a node said about one hold of the batch.
func (t *renewals) vote(n *node, i int) Vote {
	a := t.nodes[n.index]
	switch {
	case a == nil:
		return Vote{Err: errNoAnswer}
	case i < len(a.value) && a.value[i] == driver.Renewed:
		return Vote{Answer: "renewed"}
	case i < len(a.value) && a.value[i] == driver.RenewLost:
		return Vote{Answer: "lost"}
	case a.err != nil:
		return Vote{Err: a.err}
	}
	return Vote{Err: errNoOutcome}
}

// abandon releases what a minority of the nodes still has of a hold that is
// lost, in the background.
func (s *Store) abandon(lost driver.RenewRequest) {
	c := s.claim(lost.Name, lost.Owner)
	defer s.unclaim(c)
	places := s.queue(c, release, nil)
	req := driver.ReleaseRequest{Name: lost.Name, Owner: lost.Owner}
	poll(context.Background(), s, func(ctx context.Context, n *node) (bool, error) {
		return s.releaseInTurn(ctx, n, c, places[n.index], nil, req)
	}).send()
}
