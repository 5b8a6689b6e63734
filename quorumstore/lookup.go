package quorumstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store]. It reports a hold that a majority of the nodes has, with the
// time that was left by the last renewal. A hold of a minority does not count: it is about to be
// released, or to expire. If nodes that do not reply leave it open which of the two it is, the
// error has the replies.
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	var found []driver.Record
	unknown := len(s.nodes)
	b := ask(s, ctx, func(ctx context.Context, n *node) ([]driver.Record, error) { return n.Lookup(ctx, name) })
	for node := range b.count(ctx, s.timeout) {
		if b.errs[node] != nil {
			continue
		}
		unknown--
		found = append(found, b.values[node]...)
		if hold, clear := s.majorityHold(found, unknown); clear {
			return hold, nil
		}
	}
	return nil, b.err("it is not clear who has it")
}

// Break implements [driver.Store]. It waits for all nodes, up to the Timeout, and succeeds if a
// majority did it: the hold then has no majority any more, and a successor can have one. It does
// not return earlier, so that none of its requests is still in flight to a node, where it might end
// the successor's part.
//
// Each node compares a token with its own. Break returns the hold if so many nodes ended one that
// the others are no majority, and none if so many nodes had none. What a node granted to the same
// owner under another token stays until the next renewal or the TTL.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	var ended []driver.Record
	had, without := 0, 0
	b := ask(s, ctx, func(ctx context.Context, n *node) ([]driver.Record, error) { return n.Break(ctx, name, token) })
	for node := range b.count(ctx, s.timeout) {
		ended = append(ended, b.values[node]...)
		switch {
		case len(b.values[node]) > 0:
			had++
		case b.errs[node] == nil:
			without++
		}
	}
	switch {
	case had > s.minority():
		return largestGroup(ended)[:1], nil
	case without > s.minority():
		return nil, nil
	}
	return nil, b.err("too few nodes confirmed it")
}

// List implements [driver.Store]. It reads the lists of the nodes into memory, and yields the holds
// that a majority of them has. Once a majority is complete, the others have the Timeout to finish.
// For a name that may or may not have a majority, since a node did not reply, it yields an error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.checkUsable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		reading, cancel := context.WithCancel(ctx)
		defer cancel()
		b := ask(s, ctx, func(_ context.Context, n *node) ([]driver.Record, error) { return readList(reading, n, prefix) })
		names, complete := map[string][]driver.Record{}, 0
		for node := range b.count(ctx, listTimeouts*s.timeout) {
			if b.errs[node] != nil {
				continue
			}
			for _, rec := range b.values[node] {
				names[rec.Name] = append(names[rec.Name], rec)
			}
			if complete++; complete >= s.need {
				b.within(s.timeout)
			}
		}
		if complete < s.need {
			yield(driver.Record{}, b.err("the lists are not complete"))
			return
		}
		for name, records := range names {
			hold, clear := s.majorityHold(records, len(s.nodes)-complete)
			var err error
			if !clear {
				hold, err = []driver.Record{{}}, fmt.Errorf("%q: it is not clear who has it", name)
			}
			if len(hold) > 0 && !yield(hold[0], err) {
				return
			}
		}
	}
}

// listTimeouts is how many Timeouts a node has for its whole list.
const listTimeouts = 60

// readList reads the list of a node.
func readList(ctx context.Context, n *node, prefix string) (list []driver.Record, err error) {
	for rec, failed := range n.List(ctx, prefix) {
		if failed != nil {
			return nil, failed
		}
		list = append(list, rec)
	}
	return list, nil
}

// majorityHold returns the hold that a majority of the nodes has, or none, given the records of the
// name from the nodes and the number of the others, which are unknown. If these leave it open,
// clear is false.
func (s *Store) majorityHold(records []driver.Record, unknown int) (hold []driver.Record, clear bool) {
	group := largestGroup(records)
	if len(group) >= s.need {
		return group[:1], true // At least one node of the last renewal is among these.
	}
	return nil, len(group)+unknown < s.need
}
