package quorumstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store]. It reports a hold that a majority of the nodes has. One of a
// minority does not count: it is about to be released, or to expire. If nodes that do not reply
// leave it open which of the two it is, the error has the replies.
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	b, holds, unclear := s.holds(ctx, s.timeout, func(ctx context.Context, n *node) ([]driver.Record, error) {
		return n.Lookup(ctx, name)
	})
	if len(unclear) > 0 {
		return nil, b.err("it is not clear who has it")
	}
	return holds, nil
}

// List implements [driver.Store]. It reads the lists of the nodes into memory, and yields the holds
// that a majority of them has. A node has 60 Timeouts for its whole list, which an error ends. For
// a name that may or may not have a majority, since a node did not reply, it yields an error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.checkUsable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		reading, cancel := context.WithCancel(ctx)
		defer cancel()
		b, holds, unclear := s.holds(ctx, 60*s.timeout, func(_ context.Context, n *node) (list []driver.Record, err error) {
			for rec, failed := range n.List(reading, prefix) {
				if failed != nil {
					return nil, failed
				}
				list = append(list, rec)
			}
			return list, nil
		})
		for _, rec := range holds {
			if !yield(rec, nil) {
				return
			}
		}
		for _, name := range unclear {
			err := fmt.Errorf("%q: it is not clear who has it", name)
			if name == "" {
				err = cmp.Or(ctx.Err(), error(b.err("the lists are not complete")))
			}
			if !yield(driver.Record{}, err) {
				return
			}
		}
	}
}

// holds has the nodes read records, and returns the holds that a majority of them has. It returns
// when a majority has replied and no other reply can change that. Otherwise the others have the
// Timeout from then on, and unclear has the names of which they decide, or "" without a majority.
func (s *Store) holds(
	ctx context.Context, timeout time.Duration, read func(context.Context, *node) ([]driver.Record, error),
) (b *ballot[[]driver.Record], holds []driver.Record, unclear []string) {
	names, unknown := map[string][]driver.Record{}, len(s.nodes)
	unclear = []string{""}
	b = ask(s, ctx, timeout, read, func(b *ballot[[]driver.Record], node int) bool {
		if b.errs[node] != nil {
			return false
		}
		for _, rec := range b.values[node] {
			names[rec.Name] = append(names[rec.Name], rec)
		}
		if unknown--; unknown > s.minority() {
			return false
		}
		holds, unclear = nil, nil
		for name, records := range names {
			rec, most := mostlyHeld(records)
			if most >= s.need {
				holds = append(holds, rec) // At least one node of the last renewal is among these.
			} else if most+unknown >= s.need {
				unclear = append(unclear, name)
			}
		}
		b.within(s.timeout)
		return len(unclear) == 0
	})
	return b, holds, unclear
}

// Break implements [driver.Store]. It waits for all nodes, up to the Timeout, so that none of its
// requests is still in flight, where it might end a successor's part. It returns the hold if so
// many nodes ended one that the others are no majority, and none if so many nodes had none. Each
// node compares a token with its own: what it granted to the same owner under another token stays
// until the next renewal or the TTL.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	had, without := 0, 0
	b := ask(s, ctx, s.timeout, func(ctx context.Context, n *node) ([]driver.Record, error) {
		return n.Break(ctx, name, token)
	}, func(b *ballot[[]driver.Record], node int) bool {
		if len(b.values[node]) > 0 {
			had++
		} else if b.errs[node] == nil {
			without++
		}
		return false // All replies count.
	})
	switch {
	case had > s.minority():
		broken, _ := mostlyHeld(slices.Concat(b.values...))
		return []driver.Record{broken}, nil
	case without > s.minority():
		return nil, nil
	}
	return nil, b.err("too few nodes confirmed it")
}
