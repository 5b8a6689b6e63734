package quorumstore

import (
	"errors"
	"fmt"
	"time"
)

// closeShare is the part of the Timeout that a minority of the nodes has for what
// it still owes when Close has nothing else to wait for.
const closeShare = 10

// Close implements [driver.Store]. It ends watches and attempts, and waits for
// what has to be given back: for a majority of the nodes, up to the Timeout; for
// the others as long as that took, or a tenth of the Timeout if that is longer,
// and not at all if they did not answer before. It closes the nodes only if
// Options.CloseStores says so.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.closing)
	s.drain()
	s.end()
	s.crew.close()
	if !s.owns {
		return nil
	}
	return s.closeNodes()
}

// drain waits for what is under way.
func (s *Store) drain() {
	began := time.Now()
	limit := time.NewTimer(s.timeout)
	defer limit.Stop()
	grace := &time.Timer{}
	for {
		owing, hopeful := s.owing()
		switch {
		case s.calls.Load() > 0 || owing > len(s.nodes)-s.need:
		case hopeful == 0:
			return
		case grace.C == nil:
			grace = time.NewTimer(max(s.timeout/closeShare, time.Since(began)))
			defer grace.Stop()
		}
		select {
		case <-s.settled:
		case <-grace.C:
			return
		case <-limit.C:
			return
		}
	}
}

// owing returns how many nodes have requests that they have not answered, and
// how many of them have answered the one before.
func (s *Store) owing() (owing, hopeful int) {
	for _, n := range s.nodes {
		if n.busy.Load() == 0 {
			continue
		}
		owing++
		if !n.silent() {
			hopeful++
		}
	}
	return owing, hopeful
}

// begin and done count requests to a node.
func (s *Store) begin(n *node) { n.busy.Add(1) }

func (s *Store) done(n *node) {
	if n.busy.Add(-1) == 0 {
		s.settle()
	}
}

// beginCall and doneCall count calls that may leave something to be done.
func (s *Store) beginCall() { s.calls.Add(1) }

func (s *Store) doneCall() {
	if s.calls.Add(-1) == 0 {
		s.settle()
	}
}

// settle tells drain that something is over.
func (s *Store) settle() {
	if !s.closed.Load() {
		return
	}
	select {
	case s.settled <- struct{}{}:
	default:
	}
}

// closeNodes closes every node.
func (s *Store) closeNodes() error {
	var errs []error
	for _, n := range s.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, fmt.Errorf("node %d (%s): %w", n.index+1, n.can.Store, err))
		}
	}
	return errors.Join(errs...)
}
