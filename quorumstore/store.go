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
	// Timeout bounds every request to a node, whatever the node's client
	// library does; 0 means [DefaultTimeout]. It is what an operation can take
	// at most while no majority answers, and costs nothing while one does. It
	// should be several round trips to the farthest node, and well below a
	// third of the shortest TTL in use.
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
	closing chan struct{} // closed when Close begins
	work    atomic.Int64  // goroutines under way
	idle    chan struct{} // told when a closed Store has none left; room for one

	mu     sync.Mutex
	claims map[claimKey]*claim // what is under way, by owner
	doubts int                 // see doubtLimit
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
		idle:    make(chan struct{}, 1),
		claims:  map[claimKey]*claim{},
	}
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
		s.nodes = append(s.nodes, &node{Store: store, index: i, can: can[i], timeout: s.timeout, began: began})
	}
	s.can = combine(can, s.need)
	return s
}

// Guarantees implements [driver.Store]. The package comment says how they
// follow from those of the nodes.
func (s *Store) Guarantees() driver.Guarantees { return s.can }

// Close implements [driver.Store]. It ends watches, and waits for requests that
// are still on their way to a node, clean-ups above all, for the Timeout at
// most. It closes the nodes only if Options.CloseStores says so.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.closing)
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	for s.work.Load() > 0 {
		select {
		case <-s.idle:
			continue
		case <-timer.C:
		}
		break
	}
	if !s.owns {
		return nil
	}
	return s.closeNodes()
}

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

// start counts goroutines that are about to begin, done one that has ended.
func (s *Store) start(goroutines int) { s.work.Add(int64(goroutines)) }

func (s *Store) done() {
	if s.work.Add(-1) == 0 && s.closed.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
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
