package quorumstore

import (
	"errors"
	"fmt"
	"time"
)

// The parts of the Timeout that a minority of the nodes has for its pending requests when Close has
// nothing else to wait for: knownNodeShare for a node that has replied before, and unknownNodeShare
// for one that never has. The latter hangs, most likely. A program that takes a lock for a moment
// would spend most of its time on it.
const (
	knownNodeShare   = 10
	unknownNodeShare = 100
)

// Close implements [olddriver.Store]. It ends waits and attempts, and waits for grants that have to
// be released: for a majority of the nodes, up to the Timeout; for the others as long as that took,
// or a tenth of the Timeout if that is longer (a hundredth for a node that has never replied), and
// not at all if they left the request before without a reply. It closes the nodes only if
// Options.CloseStores is set.
func (s *engine) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.beginClosing()
	s.drain()
	s.endAlive()
	if !s.ownsNodes {
		return nil
	}
	var errs []error
	for _, n := range s.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, fmt.Errorf("node %d (%s): %w", n.index+1, n.guarantees.Store, err))
		}
	}
	return errors.Join(errs...)
}

// drain waits for requests in flight.
func (s *engine) drain() {
	began := time.Now()
	timeout := time.NewTimer(s.timeout)
	defer timeout.Stop()
	majorityAfter := time.Duration(-1) // how long a majority took to have no request; negative before
	for {
		calls := s.calls.Load() // before the requests are counted, since a call leaves some when it ends
		pending, grace := s.pendingNodes()
		var graceOver <-chan time.Time
		if calls == 0 && pending <= len(s.nodes)-s.need {
			if grace == 0 {
				return
			}
			if majorityAfter < 0 {
				majorityAfter = time.Since(began)
			}
			graceOver = time.After(max(grace, majorityAfter) - (time.Since(began) - majorityAfter))
		}
		select {
		case <-s.drainSignal:
		case <-graceOver:
			return
		case <-timeout.C:
			return
		}
	}
}

// pendingNodes returns the number of nodes with requests that have no reply, and how long to wait
// for them when they are a minority.
func (s *engine) pendingNodes() (pending int, grace time.Duration) {
	for _, n := range s.nodes {
		if n.pending.Load() == 0 {
			continue
		}
		pending++
		switch {
		case n.isUnresponsive():
		case n.hasReplied.Load():
			grace = max(grace, s.timeout/knownNodeShare)
		default:
			grace = max(grace, s.timeout/unknownNodeShare)
		}
	}
	return pending, grace
}

// beginRequest and endRequest count requests to a node.
func (s *engine) beginRequest(n *node) {
	if n.pending.Add(1) == 1 {
		n.lastReply.Store(n.now())
	}
}

func (s *engine) endRequest(n *node) {
	if n.pending.Add(-1) == 0 {
		s.signalDrain()
	}
}

// doneCall records the end of a call that may leave work behind.
func (s *engine) doneCall() {
	if s.calls.Add(-1) == 0 {
		s.signalDrain()
	}
}

// signalDrain wakes drain after a request or a call has ended.
func (s *engine) signalDrain() {
	if !s.closed.Load() {
		return
	}
	select {
	case s.drainSignal <- struct{}{}:
	default:
	}
}
