package quorumstore

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store]. It reports a hold that a majority of the
// nodes has, with the time that was left by the last renewal. What only a
// minority has is no hold: it is about to be given back, or to run out. If nodes
// that do not answer leave it open which of the two it is, the error is an
// [Error].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	if !s.can.Lookup {
		return driver.Record{}, false, fmt.Errorf("%w: a node cannot look up", driver.ErrUnsupported)
	}
	p := &picture{s: s, nodes: make([]*answer[finding], len(s.nodes))}
	err := poll(ctx, s, func(ctx context.Context, n *node) (finding, error) {
		return ask(ctx, n, func(ctx context.Context) (found finding, err error) {
			found.rec, found.held, err = n.Lookup(ctx, name)
			return found, err
		})
	}).hear(func(a answer[finding]) bool {
		p.nodes[a.node] = &a
		_, sight := p.look()
		return sight != unclear
	})
	rec, sight := p.look()
	if sight == unclear {
		return driver.Record{}, false, s.fail("it is not clear who has it", err, p.vote)
	}
	return rec, sight == held, nil
}

// Break implements [driver.Store]. It waits for all nodes, up to the Timeout,
// and succeeds if a majority did it: the hold then has no majority any more,
// and a successor can have one. It does not return earlier, so that nothing of it is
// left on the way to a node, where it might end the successor's part.
func (s *Store) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	if !s.can.Break {
		return driver.Record{}, false, fmt.Errorf("%w: a node cannot break", driver.ErrUnsupported)
	}
	p := &picture{s: s, nodes: make([]*answer[finding], len(s.nodes))}
	done := 0
	err := poll(ctx, s, func(ctx context.Context, n *node) (finding, error) {
		return ask(ctx, n, func(ctx context.Context) (found finding, err error) {
			found.rec, found.held, err = n.Break(ctx, name)
			return found, err
		})
	}).hear(func(a answer[finding]) bool {
		p.nodes[a.node] = &a
		if a.err == nil {
			done++
		}
		return false
	})
	if done < s.need {
		return driver.Record{}, false, s.fail("too few nodes confirmed it", err, p.vote)
	}
	rec, sight := p.look()
	return rec, sight != free && rec.Name != "", nil
}

// A picture is what the nodes say about a name.
type picture struct {
	s     *Store
	nodes []*answer[finding]
}

type finding struct {
	rec  driver.Record
	held bool
}

type sight uint8

const (
	unclear sight = iota
	held
	free
)

// look returns the hold that a majority has; or, if that is unclear, the one
// that may have it.
func (p *picture) look() (driver.Record, sight) {
	var records []driver.Record
	unknown := 0
	for _, a := range p.nodes {
		switch {
		case a == nil || a.err != nil:
			unknown++
		case a.value.held:
			records = append(records, a.value.rec)
		}
	}
	return p.s.majority(records, unknown)
}

// majority judges the records that nodes gave of a name when so many others are
// unknown.
func (s *Store) majority(records []driver.Record, unknown int) (driver.Record, sight) {
	group := largest(records)
	switch {
	case len(group) >= s.need:
		// Of the nodes of the last renewal one at least is among these.
		return group[0], held
	case len(group)+unknown < s.need:
		return driver.Record{}, free
	case len(group) == 0:
		return driver.Record{}, unclear
	}
	return group[0], unclear
}

func (p *picture) vote(n *node) Vote {
	switch a := p.nodes[n.index]; {
	case a == nil:
		return Vote{Err: errNoAnswer}
	case a.err != nil:
		return Vote{Err: a.err}
	case a.value.held:
		return Vote{Answer: describe(a.value.rec), Held: a.value.rec}
	}
	return Vote{Answer: "free"}
}
