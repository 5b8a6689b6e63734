package quorumstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store]. It reports a hold that a majority of the nodes has, with the
// time that was left by the last renewal. A hold of a minority does not count: it is about to be
// released, or to expire. If nodes that do not reply leave it open which of the two it is, the
// error is an [Error].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	if !s.guarantees.Lookup {
		return driver.Record{}, false, fmt.Errorf("%w: a node cannot look up", driver.ErrUnsupported)
	}
	f := newFanOut[*driver.Record](ctx, s, s.timeout)
	f.count = func(int, *driver.Record, error) bool {
		_, state := s.lookupState(f)
		return state != stateUnclear
	}
	f.send(func(ctx context.Context, n *node) (*driver.Record, error) {
		return recordOrNil(n.Lookup(ctx, name))
	})
	err := f.wait(ctx)
	rec, state := s.lookupState(f)
	if state == stateUnclear {
		return driver.Record{}, false, s.quorumError("it is not clear who has it", err, f.votes(describeRecord))
	}
	return rec, state == stateHeld, nil
}

// Break implements [driver.Store]. It waits for all nodes, up to the Timeout, and succeeds if a
// majority did it: the hold then has no majority any more, and a successor can have one. It does
// not return earlier, so that none of its requests is still in flight to a node, where it might end
// the successor's part.
//
// With a token, each node compares it with its own. Break reports true if so many nodes ended that
// hold that the others are no majority, and false if so many nodes do not have it. What a node
// granted to the same owner under another token stays until the next renewal or the TTL.
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	if !s.guarantees.Break {
		return driver.Record{}, false, fmt.Errorf("%w: a node cannot break", driver.ErrUnsupported)
	}
	if req.Token != 0 && !s.guarantees.Fencing {
		return driver.Record{}, false, nil // No hold has a token.
	}
	replied := 0
	var ended []driver.Record
	f := newFanOut[*driver.Record](ctx, s, s.timeout)
	f.count = func(_ int, rec *driver.Record, err error) bool {
		if err == nil {
			replied++
			if rec != nil {
				ended = append(ended, *rec)
			}
		}
		return false
	}
	f.send(func(ctx context.Context, n *node) (*driver.Record, error) {
		return recordOrNil(n.Break(ctx, req))
	})
	err := f.wait(ctx)
	minority := len(s.nodes) - s.need
	switch {
	case req.Token != 0 && len(ended) > minority:
		return largestGroup(ended)[0], true, nil
	case req.Token != 0 && replied-len(ended) > minority:
		return driver.Record{}, false, nil
	case req.Token != 0 || replied < s.need:
		return driver.Record{}, false, s.quorumError("too few nodes confirmed it", err, f.votes(describeRecord))
	}
	rec, state := s.majorityState(ended, len(s.nodes)-replied)
	return rec, state != stateFree && rec.Name != "", nil
}

func recordOrNil(rec driver.Record, found bool, err error) (*driver.Record, error) {
	if !found {
		return nil, err
	}
	return &rec, err
}

func describeRecord(rec *driver.Record) Vote {
	if rec == nil {
		return Vote{Answer: "free"}
	}
	return Vote{Answer: describeHold(*rec), Held: *rec}
}

type lookupState uint8

const (
	stateUnclear lookupState = iota
	stateHeld
	stateFree
)

// lookupState returns the hold that a majority has; or, if that is unclear, the one that may have
// it.
func (s *Store) lookupState(f *fanOut[*driver.Record]) (driver.Record, lookupState) {
	var records []driver.Record
	unknown := 0
	for i, rec := range f.values {
		if f.errs[i] != nil {
			unknown++
		} else if rec != nil {
			records = append(records, *rec)
		}
	}
	return s.majorityState(records, unknown)
}

// majorityState evaluates the records of a name from the nodes, when the given number of other
// nodes is unknown.
func (s *Store) majorityState(records []driver.Record, unknown int) (driver.Record, lookupState) {
	group := largestGroup(records)
	switch {
	case len(group) >= s.need:
		// At least one node of the last renewal is among these.
		return group[0], stateHeld
	case len(group)+unknown < s.need:
		return driver.Record{}, stateFree
	case len(group) == 0:
		return driver.Record{}, stateUnclear
	}
	return group[0], stateUnclear
}
