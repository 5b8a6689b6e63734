package etcdstore

import (
	"cmp"
	"context"
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
	// exclude each other need the same. None may begin with another one and "lock/": the two would
	// share names, and not their tokens.
	Prefix string
}

// A Store keeps locks in etcd. Its methods may be called from many goroutines at once.
type Store struct {
	client     *clientv3.Client
	leasing    pb.LeaseClient
	ownsClient bool   // Close closes the client as well
	lockKeys   string // what the keys of entries begin with: see record.go
	baseKey    string
	wall       func() time.Time
	alive      context.Context // until Close
	end        context.CancelFunc
	group      sync.WaitGroup // goroutines
	base       atomic.Int64   // that new tokens have, 0 until it is known
	notices    notices.Registry
	writes     batch.Queue[*call]

	turns sync.Map    // channels by the seconds of leases, full while a caller requests such a lease
	idle  chan stream // an open one for keep-alives

	mu      sync.Mutex                  // guards all below, and the leases and entries
	entries map[[2]string]*entry        // that this Store has requested or renewed, by name and owner
	leases  map[clientv3.LeaseID]*lease // of this Store; see leaseFor
}

// An entry is what this Store knows of a hold or place that it has requested or renewed.
type entry struct {
	name, owner string
	record      *record   // as it was read or written last; nil until it is known
	moving      int64     // the last revision of a record that a request was to change
	until       time.Time // the end that the owner has requested
	held        bool      // as it was known last
	unwatch     func()    // nil while nobody watches it
}

// isKnown reports whether nothing that this Store has sent can change the record: all requests that
// may still arrive are for earlier revisions of its key.
func (e *entry) isKnown() bool { return e.record != nil && e.record.modified > e.moving }

// isOver reports whether the end that the owner has requested is past, by slack at least.
func (e *entry) isOver() bool { return time.Since(e.until) >= slack }

// New returns a store that uses a client of the caller, which must stay open until after Close.
func New(client *clientv3.Client, opts *Options) *Store {
	prefix := cmp.Or(cmp.Or(opts, &Options{}).Prefix, DefaultPrefix)
	s := &Store{
		client: client, wall: time.Now, lockKeys: prefix + "lock/", baseKey: prefix + "base",
		idle: make(chan stream, 1), entries: map[[2]string]*entry{}, leases: map[clientv3.LeaseID]*lease{},
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.writes = batch.Queue[*call]{
		Send: s.sendCalls, Name: func(c *call) string { return c.name },
		InFlight: 4, Max: maxCalls, Bound: requestBound, StuckAfter: 250 * time.Millisecond, MinInline: time.Millisecond,
	}
	if client != nil {
		s.leasing = pb.NewLeaseClient(client.ActiveConnection())
	}
	s.group.Go(s.sweep)
	return s
}

// Client returns the client of the store.
func (s *Store) Client() *clientv3.Client { return s.client }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store: "etcd", Fencing: true, Queue: true, Limits: true, Keep: true, Grain: grain,
		Crash: driver.FateKept, Restart: driver.FateKept, Failover: driver.FateKept,
	}
}

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Close implements [driver.Store]. It closes the client if the store was opened from a URL: its
// connection alone, since its own Close may wait forever for a watch that ended meanwhile.
func (s *Store) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.group.Wait()
	if s.ownsClient {
		_ = s.client.ActiveConnection().Close() // It fails only if it is closed already.
	}
	return nil
}

// forget removes an entry that has ended, or that another Store has. The caller holds s.mu.
func (s *Store) forget(e *entry) {
	if id := [2]string{e.name, e.owner}; s.entries[id] == e {
		delete(s.entries, id)
	}
	if e.unwatch != nil {
		e.unwatch()
	}
}
