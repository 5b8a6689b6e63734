package quorumstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store]. It reports a hold that a majority of the nodes has, with the
// time that was left by the last renewal. A hold of a minority does not count: it is about to be
// released, or to expire. If nodes that do not reply leave it open which of the two it is, the
// error is an [Error].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	var found []driver.Record
	unknown := len(s.nodes)
	b := ask(s, ctx, s.timeout, func(n *node) ([]driver.Record, error) {
		return send(s, ctx, n, func(ctx context.Context) ([]driver.Record, error) { return n.Lookup(ctx, name) })
	}, func(b *ballot[[]driver.Record], node int) time.Duration {
		if b.errs[node] == nil {
			unknown--
			found = append(found, b.values[node]...)
		}
		if _, clear := s.majorityHold(found, unknown); clear {
			return noLonger
		}
		return asBefore
	})
	hold, clear := s.majorityHold(found, unknown)
	if !clear {
		return nil, b.err("it is not clear who has it", describeRecords)
	}
	return hold, nil
}

// Break implements [driver.Store]. It waits for all nodes, up to the Timeout, and succeeds if a
// majority did it: the hold then has no majority any more, and a successor can have one. It does
// not return earlier, so that none of its requests is still in flight to a node, where it might end
// the successor's part.
//
// With a token, each node compares it with its own. Break returns the hold if so many nodes ended it
// that the others are no majority, and none if so many nodes do not have it. What a node granted to
// the same owner under another token stays until the next renewal or the TTL.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if token != 0 && !s.guarantees.Fencing {
		return nil, nil // No hold has a token.
	}
	var ended []driver.Record
	replied, had := 0, 0
	b := ask(s, ctx, s.timeout, func(n *node) ([]driver.Record, error) {
		return send(s, ctx, n, func(ctx context.Context) ([]driver.Record, error) { return n.Break(ctx, name, token) })
	}, func(b *ballot[[]driver.Record], node int) time.Duration {
		if b.errs[node] == nil {
			replied++
			if ended = append(ended, b.values[node]...); len(b.values[node]) > 0 {
				had++
			}
		}
		return asBefore
	})
	minority := len(s.nodes) - s.need
	switch {
	case token != 0 && had > minority:
		return largestGroup(ended)[:1], nil
	case token != 0 && replied-had > minority:
		return nil, nil
	case token != 0 || replied < s.need:
		return nil, b.err("too few nodes confirmed it", describeRecords)
	}
	hold, _ := s.majorityHold(ended, len(s.nodes)-replied)
	return hold, nil
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
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		complete := 0
		b := ask(s, ctx, listTimeouts*s.timeout, func(n *node) (map[string][]driver.Record, error) {
			return readList(ctx, n, prefix)
		}, func(b *ballot[map[string][]driver.Record], node int) time.Duration {
			if b.errs[node] == nil {
				complete++
			}
			if complete >= s.need {
				return s.timeout
			}
			return asBefore
		})
		describe := func(map[string][]driver.Record) string { return "complete" }
		if complete < s.need {
			yield(driver.Record{}, b.err("the lists are not complete", describe))
			return
		}
		names := map[string][]driver.Record{}
		for _, list := range b.values {
			for name, records := range list {
				names[name] = append(names[name], records...)
			}
		}
		for name, records := range names {
			unknown := 0
			for node, err := range b.errs {
				if err != nil && b.values[node][name] == nil {
					unknown++
				}
			}
			hold, clear := s.majorityHold(records, unknown)
			var err error
			if !clear {
				hold = []driver.Record{{}}
				err = fmt.Errorf("%q: %w", name, b.err("it is not clear who has it", describe))
			}
			if len(hold) > 0 && !yield(hold[0], err) {
				return
			}
		}
	}
}

// listTimeouts is how many Timeouts a node has for its whole list.
const listTimeouts = 60

// readList reads the list of a node, by the names. One with an error is not complete.
func readList(ctx context.Context, n *node, prefix string) (map[string][]driver.Record, error) {
	list := map[string][]driver.Record{}
	var failed error
	for rec, err := range n.List(ctx, prefix) {
		if err != nil {
			failed = err
			continue
		}
		list[rec.Name] = append(list[rec.Name], rec)
	}
	return list, failed
}

func describeRecords(records []driver.Record) string {
	if len(records) == 0 {
		return "free"
	}
	return describeHold(records[0])
}

// majorityHold returns the hold that a majority of the nodes has, or none, given the records of the
// name from the nodes and the number of the others, which are unknown. If these leave it open, clear
// is false, and the hold is the one that may have a majority.
func (s *Store) majorityHold(records []driver.Record, unknown int) (hold []driver.Record, clear bool) {
	group := largestGroup(records)
	switch {
	case len(group) >= s.need:
		return group[:1], true // At least one node of the last renewal is among these.
	case len(group)+unknown < s.need:
		return nil, true
	}
	return group[:min(len(group), 1)], false
}
