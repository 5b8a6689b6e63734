package quorumstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// listTimeouts is how many Timeouts a node has for its whole list.
const listTimeouts = 60

// List implements [olddriver.Store]. It reads the lists of the nodes into memory, and yields the holds
// that a majority of them has. Once a majority is complete, the others have the Timeout to finish.
// For a name that may or may not have a majority, since a node did not reply, it yields an error.
func (s *engine) List(ctx context.Context, prefix string) iter.Seq2[olddriver.Record, error] {
	return func(yield func(olddriver.Record, error) bool) {
		if err := s.checkUsable(ctx); err != nil {
			yield(olddriver.Record{}, err)
			return
		}
		if !s.guarantees.List {
			yield(olddriver.Record{}, fmt.Errorf("%w: a node cannot list", driver.ErrUnsupported))
			return
		}
		f, err := s.listNodes(ctx, prefix)
		if err != nil {
			yield(olddriver.Record{}, err)
			return
		}
		seen := map[string]bool{}
		for _, list := range f.values {
			for name := range list {
				if seen[name] {
					continue
				}
				seen[name] = true
				var records []olddriver.Record
				unknown := 0
				for i, other := range f.values {
					if rec, ok := other[name]; ok {
						records = append(records, rec)
					} else if f.errs[i] != nil {
						unknown++
					}
				}
				rec, held, clear := s.majorityHold(records, unknown)
				if clear && !held {
					continue
				}
				var err error
				if !clear {
					err = s.quorumError("it is not clear who has it", nil, f.votes(describeList))
					rec, err = olddriver.Record{}, fmt.Errorf("%q: %w", name, err)
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}

func describeList(map[string]olddriver.Record) Vote { return Vote{Answer: "complete"} }

// listNodes reads the list of each node, by the names. A list with an error is not complete. The
// requests end with ctx.
func (s *engine) listNodes(ctx context.Context, prefix string) (*fanOut[map[string]olddriver.Record], error) {
	f := newFanOut[map[string]olddriver.Record](ctx, s, listTimeouts*s.timeout)
	complete := 0
	f.count = func(_ int, _ map[string]olddriver.Record, err error) bool {
		if err == nil {
			complete++
		}
		if complete == s.need {
			f.graceAfter(s.timeout)
		}
		return false
	}
	f.send(func(ctx context.Context, n *node) (list map[string]olddriver.Record, failed error) {
		list = map[string]olddriver.Record{}
		for rec, err := range n.List(ctx, prefix) {
			if err != nil {
				failed = err
				continue
			}
			list[rec.Name] = rec
		}
		return list, failed
	})
	defer f.cancel()
	stop := context.AfterFunc(ctx, f.giveUp)
	defer stop()
	err := f.wait(ctx)
	if err == nil && complete < s.need {
		err = ctx.Err()
	}
	switch {
	case err == driver.ErrClosed:
		return nil, err
	case err != nil || complete < s.need:
		return nil, s.quorumError("the lists are not complete", err, f.votes(describeList))
	}
	return f, nil
}
