package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Examiner = (*Store)(nil)

// examineTimeout bounds what one node may take for its part of an examination.
const examineTimeout = 5 * time.Second

// An examinedNode is what was found at one node.
type examinedNode struct {
	findings []driver.Finding
	err      error // the node cannot be reached
}

// Examine implements [driver.Examiner]. It examines all nodes at the same time, and whether a
// majority of them can be reached.
func (s *Store) Examine(ctx context.Context, o driver.Examination) ([]driver.Finding, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	examined := make([]examinedNode, len(s.nodes))
	s.forEachNode(ctx, func(ctx context.Context, n *node) { examined[n.index] = examineNode(ctx, n, o) })
	majority, unreachable := s.examineMajority(examined)
	all := []driver.Finding{s.examineSize(), majority}
	for i, node := range examined {
		for _, f := range node.findings {
			f.Server = strings.TrimSuffix(fmt.Sprintf("node %d: %s", i+1, f.Server), ": ")
			all = append(all, f)
		}
	}
	return all, unreachable
}

// Forget implements [driver.Examiner]. It fails if less than a majority of the nodes did it: a node
// that cannot be reached has nothing of what was tried.
func (s *Store) Forget(ctx context.Context, name string) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	errs := make([]error, len(s.nodes))
	s.forEachNode(ctx, func(ctx context.Context, n *node) {
		if examiner, ok := n.Store.(driver.Examiner); ok {
			errs[n.index] = examiner.Forget(ctx, name)
		}
	})
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if len(s.nodes)-failed >= s.need {
		return nil
	}
	return errors.Join(errs...)
}

// forEachNode calls f for all nodes, and returns when all calls have returned.
func (s *Store) forEachNode(ctx context.Context, f func(context.Context, *node)) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, n := range s.nodes {
		group.Go(func() { f(ctx, n) })
	}
	group.Wait()
}

// examineNode examines one node. A node that is no driver.Examiner gets a Lookup.
func examineNode(ctx context.Context, n *node, o driver.Examination) (e examinedNode) {
	if examiner, ok := n.Store.(driver.Examiner); ok {
		if e.findings, e.err = examiner.Examine(ctx, o); e.err != nil {
			return e
		}
	}
	if len(e.findings) == 0 {
		if _, _, e.err = n.Store.Lookup(ctx, "holdfast-doctor"); e.err != nil {
			return e
		}
	}
	return e
}

func (s *Store) examineSize() driver.Finding {
	n := len(s.nodes)
	f := driver.Finding{Check: "quorum.size", Severity: driver.SeverityOK, Found: fmt.Sprintf("%d nodes, of which %d may fail", n, n-s.need)}
	if n == 1 {
		f.Found = "1 node, which may not fail"
	}
	if n%2 == 0 || n == 1 {
		f.Severity, f.Want, f.Remedy = driver.SeverityWarning, "an odd number of nodes, three at least", "one --store more"
		if n > 2 {
			f.Remedy = fmt.Sprintf("one --store more or less: %d nodes survive as many failures, at lower cost", n-1)
		}
	}
	return f
}

// examineMajority returns an error if no lock can be taken.
func (s *Store) examineMajority(examined []examinedNode) (driver.Finding, error) {
	var down []string
	for i, node := range examined {
		if node.err != nil {
			down = append(down, fmt.Sprintf("node %d (%s): %v", i+1, s.nodes[i].guarantees.Store, node.err))
		}
	}
	f := driver.Finding{Check: "quorum.majority", Severity: driver.SeverityOK, Found: "all nodes can be reached"}
	if len(down) == 0 {
		return f, nil
	}
	text := strings.Join(down, "; ")
	f.Severity, f.Found = driver.SeverityWarning, "not all nodes can be reached: "+text
	f.Want, f.Remedy = "all nodes up", "start or connect these servers"
	if len(examined)-len(down) < s.need {
		f.Severity = driver.SeverityFailure
		return f, fmt.Errorf("no majority of the nodes can be reached: %s", text)
	}
	return f, nil
}
