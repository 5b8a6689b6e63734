package quorumstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// listTimeouts is how many Timeouts a node has for its whole list.
const listTimeouts = 60

// List implements [driver.Store]. It reads the lists of the nodes into memory,
// and yields the holds that a majority of them has. Once a majority is through,
// the others have the Timeout to finish. Of a name that may or may not have a
// majority, since a node did not answer, an error is yielded.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		if !s.can.List {
			yield(driver.Record{}, fmt.Errorf("%w: a node cannot list", driver.ErrUnsupported))
			return
		}
		lists, err := s.lists(ctx, prefix)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		for name := range lists.names() {
			rec, sight := lists.judge(name)
			var err error
			switch sight {
			case free:
				continue
			case unclear:
				rec, err = driver.Record{}, fmt.Errorf("%q: %w", name, lists.fail("it is not clear who has it", nil))
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// lists are the lists of the nodes.
type lists struct {
	s     *Store
	nodes []*answer[map[string]driver.Record]
}

func (s *Store) lists(ctx context.Context, prefix string) (*lists, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeouts*s.timeout)
	defer cancel()
	l := &lists{s: s, nodes: make([]*answer[map[string]driver.Record], len(s.nodes))}
	answers := make(chan answer[map[string]driver.Record], len(s.nodes))
	for _, n := range s.nodes {
		s.begin(n)
		go func() {
			defer s.done(n)
			records, err := n.list(ctx, prefix)
			answers <- answer[map[string]driver.Record]{n.index, records, err}
		}()
	}
	var enough <-chan time.Time // ticks when the rest has had its time
	complete := 0
	for range s.nodes {
		select {
		case a := <-answers:
			l.nodes[a.node] = &a
			if a.err == nil {
				complete++
			}
		case <-enough:
			return l, nil
		case <-s.closing:
			return nil, driver.ErrClosed
		case <-ctx.Done():
			return nil, l.fail("the lists are not complete", ctx.Err())
		}
		if complete == s.need {
			enough = time.After(s.timeout)
		}
	}
	if complete < s.need {
		return nil, l.fail("the lists are not complete", ctx.Err())
	}
	return l, nil
}

// list reads the whole list of a node. With an error it is not complete.
func (n *node) list(ctx context.Context, prefix string) (map[string]driver.Record, error) {
	records := map[string]driver.Record{}
	var failed error
	for rec, err := range n.List(ctx, prefix) {
		if err != nil {
			failed = err
			continue
		}
		records[rec.Name] = rec
	}
	return records, failed
}

// names yields every name on a list once.
func (l *lists) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, a := range l.nodes {
			if a == nil {
				continue
			}
			for name := range a.value {
				if !seen[name] && !yield(name) {
					return
				}
				seen[name] = true
			}
		}
	}
}

// judge says whether a majority has a name.
func (l *lists) judge(name string) (driver.Record, sight) {
	var records []driver.Record
	unknown := 0
	for _, a := range l.nodes {
		if a == nil {
			unknown++
		} else if rec, ok := a.value[name]; ok {
			records = append(records, rec)
		} else if a.err != nil {
			unknown++
		}
	}
	return l.s.majority(records, unknown)
}

func (l *lists) fail(reason string, cause error) error {
	return l.s.fail(reason, cause, func(n *node) Vote {
		switch a := l.nodes[n.index]; {
		case a == nil:
			return Vote{Err: errNoAnswer}
		case a.err != nil:
			return Vote{Err: a.err}
		}
		return Vote{Answer: "complete"}
	})
}
