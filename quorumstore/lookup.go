package quorumstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Lookup implements [olddriver.Store]. It reports a hold that a majority of the nodes has, with the
// time that was left by the last renewal. A hold of a minority does not count: it is about to be
// released, or to expire. If nodes that do not reply leave it open which of the two it is, the
// error is an [Error].
func (s *engine) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return olddriver.Record{}, false, err
	}
	if !s.guarantees.Lookup {
		return olddriver.Record{}, false, fmt.Errorf("%w: a node cannot look up", driver.ErrUnsupported)
	}
	f := newFanOut[*olddriver.Record](ctx, s, s.timeout)
	evaluate := func() (rec olddriver.Record, held, clear bool) {
		var records []olddriver.Record
		unknown := 0
		for i, rec := range f.values {
			if f.errs[i] != nil {
				unknown++
			} else if rec != nil {
				records = append(records, *rec)
			}
		}
		return s.majorityHold(records, unknown)
	}
	f.count = func(int, *olddriver.Record, error) bool {
		_, _, clear := evaluate()
		return clear
	}
	f.send(func(ctx context.Context, n *node) (*olddriver.Record, error) {
		return recordOrNil(n.Lookup(ctx, name))
	})
	err := f.wait(ctx)
	rec, held, clear := evaluate()
	if !clear {
		return olddriver.Record{}, false, s.quorumError("it is not clear who has it", err, f.votes(describeRecord))
	}
	return rec, held, nil
}

// Break implements [olddriver.Store]. It waits for all nodes, up to the Timeout, and succeeds if a
// majority did it: the hold then has no majority any more, and a successor can have one. It does
// not return earlier, so that none of its requests is still in flight to a node, where it might end
// the successor's part.
//
// With a token, each node compares it with its own. Break reports true if so many nodes ended that
// hold that the others are no majority, and false if so many nodes do not have it. What a node
// granted to the same owner under another token stays until the next renewal or the TTL.
func (s *engine) Break(ctx context.Context, req olddriver.BreakRequest) (olddriver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return olddriver.Record{}, false, err
	}
	if !s.guarantees.Break {
		return olddriver.Record{}, false, fmt.Errorf("%w: a node cannot break", driver.ErrUnsupported)
	}
	if req.Token != 0 && !s.guarantees.Fencing {
		return olddriver.Record{}, false, nil // No hold has a token.
	}
	replied := 0
	var ended []olddriver.Record
	f := newFanOut[*olddriver.Record](ctx, s, s.timeout)
	f.count = func(_ int, rec *olddriver.Record, err error) bool {
		if err == nil {
			replied++
			if rec != nil {
				ended = append(ended, *rec)
			}
		}
		return false
	}
	f.send(func(ctx context.Context, n *node) (*olddriver.Record, error) {
		return recordOrNil(n.Break(ctx, req))
	})
	err := f.wait(ctx)
	minority := len(s.nodes) - s.need
	switch {
	case req.Token != 0 && len(ended) > minority:
		return largestGroup(ended)[0], true, nil
	case req.Token != 0 && replied-len(ended) > minority:
		return olddriver.Record{}, false, nil
	case req.Token != 0 || replied < s.need:
		return olddriver.Record{}, false, s.quorumError("too few nodes confirmed it", err, f.votes(describeRecord))
	}
	rec, held, clear := s.majorityHold(ended, len(s.nodes)-replied)
	return rec, (held || !clear) && rec.Name != "", nil
}

func recordOrNil(rec olddriver.Record, found bool, err error) (*olddriver.Record, error) {
	if !found {
		return nil, err
	}
	return &rec, err
}

func describeRecord(rec *olddriver.Record) Vote {
	if rec == nil {
		return Vote{Answer: "free"}
	}
	return Vote{Answer: describeHold(*rec), Held: olddriver.NewRecord(*rec)}
}

// majorityHold returns the hold that a majority of the nodes has, given the records of the name
// from the nodes and the number of the others, which are unknown. If these leave it open, clear is
// false, and the hold is the one that may have a majority.
func (s *engine) majorityHold(records []olddriver.Record, unknown int) (rec olddriver.Record, held, clear bool) {
	group := largestGroup(records)
	switch {
	case len(group) >= s.need:
		// At least one node of the last renewal is among these.
		return group[0], true, true
	case len(group)+unknown < s.need:
		return olddriver.Record{}, false, true
	case len(group) == 0:
		return olddriver.Record{}, false, false
	}
	return group[0], false, false
}
