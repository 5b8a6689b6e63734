package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/notices"
)

// DefaultPrefix is put in front of all keys by default.
const DefaultPrefix = "holdfast/"

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of all keys. "" means [DefaultPrefix]. All programs that are to
	// exclude each other need the same. It must have no control characters.
	Prefix string
}

// closeBound limits what Close waits for.
const closeBound = time.Second

// A Store keeps locks in etcd. See the package comment for what it promises. Its methods may be
// called from many goroutines at once.
type Store struct {
	client      *clientv3.Client
	remote      pb.LeaseClient
	ownsClient  bool // Close closes the client as well
	prefix      string
	configErr   error
	unconnected *atomic.Pointer[string] // why a client that was opened from a URL has no connection
	wall        func() time.Time
	alive       context.Context // until Close
	end         context.CancelFunc
	group       sync.WaitGroup // goroutines
	notices     notices.Registry
	stream      keepAliveStream
	calls       batch.Queue[*call]
	sweeper     sync.Once

	mu      sync.Mutex // guards all below, and the leases and entries
	closed  bool
	entries map[string]*entry // that were requested through this Store, by id
	leases  map[int64]*lease  // in use for new entries, by seconds
}

// An entry is what this Store knows of a hold or place that was requested through it.
type entry struct {
	name, owner string
	key, value  string
	limit       int
	token       int64  // 0 until it is known
	lease       *lease // that the key has, or gets with an Acquire that is not answered yet
	moving      *lease // that it gets with a Renew that is not answered yet, or nil
	until       time.Time
	held        bool
	before      *record // An exclusive place waits at least as long as there is this one.
	unwatch     func()  // nil if there is no watch
}

// id is the key of an entry in Store.entries.
func id(name, owner string) string { return name + "\x00" + owner }

// is is the condition that the entry is there, and not kept.
func (e *entry) is() clientv3.Cmp { return clientv3.Compare(clientv3.Value(e.key), "=", e.value) }

var _ driver.Notifier = (*Store)(nil)

// New returns a store that uses a client of the caller. Nothing is dialed. The client must stay
// open until the Store is closed; Close does not close it.
func New(client *clientv3.Client, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		client: client, wall: time.Now, prefix: cmp.Or(opts.Prefix, DefaultPrefix),
		unconnected: new(atomic.Pointer[string]),
		entries:     map[string]*entry{}, leases: map[int64]*lease{},
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.calls = s.newCalls()
	switch {
	case client == nil:
		s.configErr = fmt.Errorf("%w: the etcd client is nil", driver.ErrInvalid)
	case strings.ContainsFunc(s.prefix, func(r rune) bool { return r < ' ' || r == 0x7f }):
		s.configErr = fmt.Errorf("%w: the prefix has a control character", driver.ErrInvalid)
	default:
		s.remote = clientv3.RetryLeaseClient(client)
	}
	return s
}

// Client returns the client of the store.
func (s *Store) Client() *clientv3.Client { return s.client }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:    "etcd",
		Fencing:  true,
		Queue:    true,
		Limits:   true,
		Keep:     true,
		Grain:    grain,
		Crash:    driver.FateKept,
		Restart:  driver.FateKept,
		Failover: driver.FateKept,
	}
}

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Close implements [driver.Store]. It ends the notices and the leases without an entry, for a
// second at most, and closes the client if the store was opened from a URL.
func (s *Store) Close() error {
	s.mu.Lock()
	wasClosed := s.closed
	s.closed = true
	var unused []*lease
	for _, l := range s.leases {
		if l.id != 0 && !s.uses(l) {
			unused = append(unused, l)
		}
	}
	s.mu.Unlock()
	s.end()
	s.group.Wait()
	if wasClosed || s.configErr != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	for _, l := range unused {
		_, _ = s.client.Revoke(ctx, l.id) // else its time ends it
	}
	if !s.ownsClient {
		return nil
	}
	return s.client.Close()
}

// check returns the error of a call that need not begin.
func (s *Store) check(ctx context.Context, name string) error {
	switch {
	case s.configErr != nil:
		return s.configErr
	case s.alive.Err() != nil:
		return driver.ErrClosed
	case s.client.Ctx().Err() != nil:
		return fmt.Errorf("%w: the etcd client", driver.ErrClosed)
	case name == "" || strings.Contains(name, "\x00"):
		return fmt.Errorf("%w: the name is empty or has a zero byte", driver.ErrInvalid)
	}
	return driver.NotApplied(ctx.Err())
}

// goWhileOpen runs f in a goroutine that Close waits for, unless the Store is closed.
func (s *Store) goWhileOpen(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.group.Go(f)
	}
}

// forget removes an entry that is over, or that another Store has. The caller holds s.mu.
func (s *Store) forget(e *entry) {
	delete(s.entries, id(e.name, e.owner))
	if e.unwatch != nil {
		e.unwatch()
	}
}
