package redisstore

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultPrefix is put in front of the names of locks unless Options say
// otherwise.
const DefaultPrefix = "lock:"

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of a lock's name to make its key; "" means
	// [DefaultPrefix]. All programs that are to exclude each other need the
	// same. It must have no control characters.
	Prefix string

	// NoPrefix makes the name of a lock its key, and ignores Prefix.
	NoPrefix bool

	// RestartGuard makes a server that may have forgotten locks, since it was
	// started anew without them, was flushed, or was promoted from a replica,
	// grant none for this long. It must be at least the longest TTL in use:
	// then all that was forgotten has run out before anything is granted
	// again. Tokens rise then, too, unless the clock was set back, or one was
	// granted that was further ahead of the clock than this, for the sake of a
	// floor (see driver.AcquireRequest.Floor; those of a quorum are a second ahead
	// of its clients' clocks, or as far as clocks differ, a minute at most). It
	// costs an INFO for each grant, and the first use of a prefix on a server
	// waits as well. 0 means no guard. Not available on a cluster.
	RestartGuard time.Duration

	// MinReplicas is how many replicas must have confirmed an acquisition or
	// a renewal before it counts (by WAIT). One that was not confirmed within
	// ReplicaTimeout is undone, or said to be unknown. It makes it less likely
	// that a failover forgets locks, and does not rule it out. 0 means none.
	MinReplicas int

	// ReplicaTimeout bounds the wait for replicas; 0 means 500 ms.
	ReplicaTimeout time.Duration
}

// A Store keeps locks in Redis. See the package comment for what it promises.
// Its methods may be called from many goroutines at once.
type Store struct {
	client  redis.UniversalClient
	owned   bool // Close closes the client as well
	cluster bool // the client is of a cluster
	obeys   bool // the client ends a request at the deadline of its context
	prefix  string
	options Options
	misuse  error // what every call returns if New was given what it cannot use
	can     driver.Guarantees
	lanes   []lane
	shared  []any       // the keys that all locks of an acquire share, but in a cluster
	guard   []any       // the argument that they share: ms of RestartGuard
	starts  atomic.Bool // calls are begun: see lane
	watcher watcher
	closed  atomic.Bool
}

var _ driver.Watcher = (*Store)(nil)

const (
	// singleLanes is how many lanes there are to a single server: it works on the
	// batch of one while the client makes that of the other.
	singleLanes = 2

	// clusterLanes is how many lanes there are to a cluster, so that a node that
	// hangs holds up few of the locks on other nodes.
	clusterLanes = 16
)

// New returns a store that uses a client of the caller: a single server's, a
// Sentinel's or a cluster's. Nothing is dialled. The client must stay open
// until the Store is closed; Close does not close it. Its commands have the
// time-outs of the client, which must not be switched off; its retries are not
// used. With ContextTimeoutEnabled, which is advised, a call that comes alone is
// quicker; if the server hangs, it may notice that its context was cancelled, not
// that its deadline has passed, up to 3 s late. The limit that package holdfast
// sets to a request is met to 100 ms if it is more than 0.9 s, else exactly.
//
// Options that are out of bounds, and a client that cannot be trusted with
// locks ([redis.Ring] moves a key to another server when one is down), are
// reported by every call.
func New(client redis.UniversalClient, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{client: client, options: *opts, prefix: opts.Prefix}
	if s.prefix == "" {
		s.prefix = DefaultPrefix
	}
	if opts.NoPrefix {
		s.prefix = ""
	}
	if s.options.ReplicaTimeout == 0 {
		s.options.ReplicaTimeout = 500 * time.Millisecond
	}
	switch client := client.(type) {
	case *redis.Client:
		s.obeys = client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.cluster, s.obeys = true, client.Options().ContextTimeoutEnabled
	}
	s.misuse = s.check()
	s.can = s.promise()
	s.lanes = make([]lane, singleLanes)
	if s.cluster {
		s.lanes = make([]lane, clusterLanes)
	}
	for i := range s.lanes {
		s.lanes[i].exec = s.pipeline
	}
	s.shared = s.sharedKeys("")
	s.guard = []any{int64(0)}
	if opts.RestartGuard > 0 {
		s.guard[0] = millis(opts.RestartGuard)
	}
	s.watcher.init(s)
	return s
}

func (s *Store) check() error {
	o := &s.options
	_, ring := s.client.(*redis.Ring)
	switch {
	case s.client == nil:
		return fmt.Errorf("%w: the Redis client is nil", driver.ErrInvalid)
	case ring:
		return fmt.Errorf("%w: a redis.Ring moves keys when a server is down, so that a lock would have two holders: "+
			"use a cluster, or a quorum of single servers", driver.ErrUnsupported)
	case strings.ContainsFunc(s.prefix, isControl):
		return fmt.Errorf("%w: the prefix has a control character", driver.ErrInvalid)
	case o.RestartGuard < 0 || o.RestartGuard > driver.MaxTTL:
		return fmt.Errorf("%w: RestartGuard is not between 0 and %v", driver.ErrInvalid, driver.MaxTTL)
	case o.RestartGuard > 0 && s.cluster:
		return fmt.Errorf("%w: RestartGuard on a cluster", driver.ErrUnsupported)
	case o.MinReplicas < 0 || o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout > requestBound/2:
		return fmt.Errorf("%w: MinReplicas is negative, or ReplicaTimeout not between 1ms and %v", driver.ErrInvalid, requestBound/2)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// promise is what the store guarantees.
func (s *Store) promise() driver.Guarantees {
	g := driver.Guarantees{
		Store:       "redis",
		Scope:       driver.ScopeNetwork,
		Blocking:    driver.BlocksToContext,
		Fencing:     true,
		HolderCrash: driver.RecoveryTTL,
		Restart:     driver.FateForgotten, // It depends on the server's persistence.
		Failover:    driver.FateForgotten, // Replication is asynchronous.
		Push:        canTrack(s.client),
		Supervised:  canTrack(s.client),
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
		Detached:    true,
	}
	if s.options.RestartGuard > 0 {
		g.Restart = driver.FateFreed
	}
	return g
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees { return s.can }

// Close implements [driver.Store]. It ends the watches, and closes the client
// if the store was opened from a URL.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.watcher.close()
	if s.owned {
		return s.client.Close()
	}
	return nil
}

var laneSeed = maphash.MakeSeed()

// lane returns the lane of a key: always the same, so that calls keep their
// order. At a single server there is one for all as soon as calls are begun: who
// does that has other servers to work on meanwhile, and larger batches are cheaper.
func (s *Store) lane(key string) *lane {
	switch {
	case s.cluster:
		return &s.lanes[slotOf(key)%clusterLanes]
	case s.starts.Load():
		return &s.lanes[0]
	}
	return &s.lanes[maphash.String(laneSeed, key)%singleLanes]
}
