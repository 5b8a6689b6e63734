package quorumstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTimeout is how long a node is given to answer one request.
const DefaultTimeout = 500 * time.Millisecond

// Options say how a Store works. The zero value, and nil, are good defaults.
type Options struct {
	// Timeout is how long a node is given to answer a request, whatever its
	// client library does; 0 means [DefaultTimeout]. It is what an operation can
	// take at most while no majority answers, and costs nothing while one does.
	// It should be several round trips to the farthest node, and well below a
	// third of the shortest TTL in use. A request that is late runs on for as
	// long again, so that its outcome is learnt, before its context ends.
	Timeout time.Duration

	// CloseStores makes Close close the nodes too.
	CloseStores bool
}

// Store is a store made of a majority of others, its nodes. It implements
// [driver.Store] and [driver.Watcher].
type Store struct {
	nodes   []*node
	need    int // how many nodes are a majority
	can     driver.Guarantees
	timeout time.Duration
	owns    bool         // Close closes the nodes
	lead    atomic.Int64 // see floor

	closed  atomic.Bool
	closing chan struct{}   // closed when Close begins
	calls   atomic.Int64    // calls under way that may leave something to be done
	settled chan struct{}   // told when a closed Store may be done; room for one
	alive   context.Context // ends when Close waits no longer
	end     context.CancelFunc
	crew    crew

	mu     sync.Mutex
	claims map[claimKey]*claim // what is under way, by owner
	doubts int                 // see doubtLimit
	last   limit               // see Store.limit
}

var _ driver.Watcher = (*Store)(nil)

// New returns a Store of the given nodes, with the default options. Every
// client that is to exclude the others must be given the same nodes, in any
// order; each must be a place of its own for locks (the same one given twice has
// two votes, which cannot always be seen, and makes a majority meaningless).
// New panics if there is no node, or a nil one. Nothing is dialled.
func New(nodes ...driver.Store) *Store {
	return NewWith(nodes, nil)
}

// NewWith is New with options.
func NewWith(nodes []driver.Store, o *Options) *Store {
	if len(nodes) == 0 {
		panic("quorumstore: a quorum needs at least one store")
	}
	if o == nil {
		o = &Options{}
	}
	s := &Store{
		need:    len(nodes)/2 + 1,
		timeout: o.Timeout,
		owns:    o.CloseStores,
		closing: make(chan struct{}),
		settled: make(chan struct{}, 1),
		claims:  map[claimKey]*claim{},
	}
	s.alive, s.end = context.WithCancel(context.Background())
	if s.timeout <= 0 {
		s.timeout = DefaultTimeout
	}
	began := time.Now()
	can := make([]driver.Guarantees, len(nodes))
	for i, store := range nodes {
		if store == nil {
			panic("quorumstore: a nil store")
		}
		can[i] = store.Guarantees()
		starter, _ := store.(driver.Starter)
		s.nodes = append(s.nodes, &node{Store: store, starter: starter, index: i, can: can[i], timeout: s.timeout, began: began})
	}
	s.can = combine(can, s.need)
	return s
}

// Guarantees implements [driver.Store]. The package comment says how they
// follow from those of the nodes.
func (s *Store) Guarantees() driver.Guarantees { return s.can }

// usable returns the error of a call that need not be begun.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return notApplied{err}
	}
	return nil
}

// pause waits, and returns an error if ctx or the Store ended first.
func (s *Store) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return driver.ErrClosed
	}
}
