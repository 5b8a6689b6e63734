package quorumstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTimeout is the time for a node to reply to one request.
const DefaultTimeout = 500 * time.Millisecond

// Options configure a Store. The zero value, and nil, are good defaults.
type Options struct {
	// Timeout is the time for a node to reply to a request, an hour at most; 0 means
	// [DefaultTimeout]. An operation takes as long at most while no majority replies, and one that
	// undoes an attempt twice as long. It should be several round trips to the farthest node, and
	// well below a third of the shortest TTL in use. A late request goes on for as long again, so
	// that its outcome is known.
	Timeout time.Duration

	// CloseStores makes Close close the nodes too.
	CloseStores bool
}

// Store is a store made of a majority of others, its nodes. It implements [driver.Store].
type Store struct {
	nodes      []*node
	need       int // how many nodes are a majority
	guarantees driver.Guarantees
	timeout    time.Duration
	ownsNodes  bool // Close closes the nodes

	closing   chan struct{} // closed when Close begins
	closeOnce sync.Once

	mu        sync.Mutex
	slowest   time.Duration        // how long a node has taken to reply to an acquisition or release
	clockLead int64                // of the nodes' clocks, as far as votes have shown it, in µs
	entries   map[[2]string]*entry // by name and owner
	most      int                  // the number of entries at which those that are over are removed
}

var _ driver.Store = (*Store)(nil)

// New returns a Store of the given nodes. Nil options mean the defaults. All clients must be given
// the same nodes, in any order, each a place of its own for locks: one given twice has two votes.
// New panics if there is no node, a nil one, or one of etcd or advisory locks. Nothing is dialed.
func New(nodes []driver.Store, o *Options) *Store {
	if err := checkNodes(nodes); err != nil {
		panic("quorumstore: " + err.Error())
	}
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		need:       len(nodes)/2 + 1,
		guarantees: combineGuarantees(nodes),
		timeout:    min(cmp.Or(max(o.Timeout, 0), DefaultTimeout), time.Hour),
		ownsNodes:  o.CloseStores,
		closing:    make(chan struct{}),
		entries:    map[[2]string]*entry{},
	}
	for i, store := range nodes {
		s.nodes = append(s.nodes, &node{Store: store, index: i})
	}
	return s
}

// checkNodes returns why there is no quorum of the stores.
func checkNodes(nodes []driver.Store) error {
	if len(nodes) == 0 || slices.Contains(nodes, nil) {
		return fmt.Errorf("%w: a quorum needs one node at least, and none that is nil", driver.ErrInvalid)
	}
	for _, n := range nodes {
		switch g := n.Guarantees(); {
		case g.Store == "etcd", g.Store == "postgres advisory":
			return fmt.Errorf("%w: no node is etcd, a quorum itself, or of advisory locks, without holders and floors of tokens", driver.ErrUnsupported)
		case g.Fencing != nodes[0].Guarantees().Fencing:
			return fmt.Errorf("%w: nodes with and without fencing tokens, which cannot agree on one", driver.ErrInvalid)
		}
	}
	return nil
}

// Nodes returns the stores of the nodes, in order.
func (s *Store) Nodes() (nodes []driver.Store) {
	for _, n := range s.nodes {
		nodes = append(nodes, n.Store)
	}
	return nodes
}

// minority returns how many nodes the quorum can lose and still have a majority.
func (s *Store) minority() int { return len(s.nodes) - s.need }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees { return s.guarantees }

// combineGuarantees returns the guarantees of a quorum: what all nodes claim. A hold need not be on
// more than a majority of them, so that one node which forgets it is enough to admit another owner.
func combineGuarantees(nodes []driver.Store) driver.Guarantees {
	g := nodes[0].Guarantees()
	g.Store, g.Queue, g.Limits, g.Tokens = "quorum", false, false, 0
	for _, n := range nodes {
		of := n.Guarantees()
		g.Keep = g.Keep && of.Keep
		g.InProcess = g.InProcess && of.InProcess
		g.Grain = max(g.Grain, of.Grain)
		if of.Crash != g.Crash {
			g.Crash = driver.FateKept
		}
		if of.Restart != g.Restart {
			g.Restart = driver.FateForgotten
		}
		if of.Failover != g.Failover {
			g.Failover = driver.FateForgotten
		}
	}
	return g
}

// checkUsable returns the error of a call that need not begin.
func (s *Store) checkUsable(ctx context.Context) error {
	select {
	case <-s.closing:
		return driver.ErrClosed
	default:
	}
	return driver.NotApplied(ctx.Err())
}

// silentShare is the part of the Timeout for which Close waits for nodes at least.
const silentShare = 100

// Close implements [driver.Store]. It waits for acquisitions and releases under way, for twice as
// long as one has taken so far at most: a program that takes a lock for a moment would
// spend most of its time on a node that hangs. It closes the nodes only if Options.CloseStores is
// set.
func (s *Store) Close() (err error) {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.mu.Lock()
		limit := min(2*s.slowest+s.timeout/silentShare, s.timeout)
		s.mu.Unlock()
		isBusy := func(n *node) bool { return n.pending.Load() > 0 }
		for began := time.Now(); slices.ContainsFunc(s.nodes, isBusy) && time.Since(began) < limit; {
			time.Sleep(s.timeout / silentShare / 10)
		}
		for _, n := range s.nodes {
			if !s.ownsNodes {
				return
			} else if failed := n.Close(); failed != nil {
				err = errors.Join(err, fmt.Errorf("node %d (%s): %w", n.index+1, n.Guarantees().Store, failed))
			}
		}
	})
	return err
}
