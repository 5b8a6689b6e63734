package quorumstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// DefaultTimeout is the time for a node to reply to one request.
const DefaultTimeout = 500 * time.Millisecond

// Options configure a Store. The zero value, and nil, are good defaults.
type Options struct {
	// Timeout is the time for a node to reply to a request, whatever its client library does; 0
	// means [DefaultTimeout]. It is what an operation can take at most while no majority replies,
	// and costs nothing while one does. It should be several round trips to the farthest node, and
	// well below a third of the shortest TTL in use. A late request goes on for as long again, so
	// that its outcome is known, before its context ends.
	Timeout time.Duration

	// CloseStores makes Close close the nodes too.
	CloseStores bool
}

// Store is a store made of a majority of others, its nodes. It implements [driver.Store].
type Store struct {
	adapted
	nodes []driver.Store
}

// adapted is an olddriver.Adapter without its notices, since a quorum has none.
type adapted = driver.Store

// Nodes returns the stores of the nodes, in order.
func (s *Store) Nodes() []driver.Store { return slices.Clone(s.nodes) }

// An engine is a store of the second edition.
type engine struct {
	nodes      []*node
	need       int // how many nodes are a majority
	guarantees olddriver.Guarantees
	timeout    time.Duration
	ownsNodes  bool         // Close closes the nodes
	clockLead  atomic.Int64 // see floorFor

	closed       atomic.Bool
	closing      context.Context // ends when Close begins
	beginClosing context.CancelFunc
	calls        atomic.Int64    // calls in flight that may leave work behind
	drainSignal  chan struct{}   // signaled when a closed Store may be done; room for one
	alive        context.Context // ends when Close waits no longer
	endAlive     context.CancelFunc

	mu     sync.Mutex
	owners map[[2]string]*ownerState // those with something in flight or in doubt, by name and owner
	doubts int                       // see doubtLimit
}

var _ olddriver.Store = (*engine)(nil)

// New returns a Store of the given nodes. Nil options mean the defaults. Every client that is to
// exclude the others must be given the same nodes, in any order. Each must be a place of its own
// for locks: the same one given twice has two votes, which makes a majority meaningless. New panics
// if there is no node, or a nil one. Nothing is dialed.
func New(nodes []driver.Store, o *Options) *Store {
	return &Store{olddriver.Adapt(newEngine(nodes, o), 1), slices.Clone(nodes)}
}

func newEngine(nodes []driver.Store, o *Options) *engine {
	if len(nodes) == 0 {
		panic("quorumstore: a quorum needs at least one store")
	}
	if o == nil {
		o = &Options{}
	}
	s := &engine{
		need:        len(nodes)/2 + 1,
		timeout:     o.Timeout,
		ownsNodes:   o.CloseStores,
		drainSignal: make(chan struct{}, 1),
		owners:      map[[2]string]*ownerState{},
	}
	s.closing, s.beginClosing = context.WithCancel(context.Background())
	s.alive, s.endAlive = context.WithCancel(context.Background())
	if s.timeout <= 0 {
		s.timeout = DefaultTimeout
	}
	began := time.Now()
	can := make([]olddriver.Guarantees, len(nodes))
	for i, store := range nodes {
		if store == nil {
			panic("quorumstore: a nil store")
		}
		old := olddriver.Unwrap(store)
		can[i] = old.Guarantees()
		n := &node{Store: old, index: i, guarantees: can[i], timeout: s.timeout, began: began}
		s.nodes = append(s.nodes, n)
	}
	s.guarantees = combineGuarantees(can, s.need)
	return s
}

// Guarantees implements [olddriver.Store]. The package comment shows how they follow from those of the
// nodes.
func (s *engine) Guarantees() olddriver.Guarantees { return s.guarantees }

// checkUsable returns the error of a call that need not begin.
func (s *engine) checkUsable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return driver.NotApplied(err)
	}
	return nil
}

// sleep returns after d. It returns an error if ctx or the Store ends first.
func (s *engine) sleep(ctx context.Context, d time.Duration) error {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if err := retry.Sleep(either, d); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return driver.ErrClosed
}
