package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultPrefix is put in front of the names of locks by default.
const DefaultPrefix = "lock:"

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of a lock's name to make its key. "" means [DefaultPrefix]. All
	// programs that are to exclude each other need the same. It is UTF-8 without control
	// characters.
	Prefix string

	// NoPrefix makes the name of a lock its key, and ignores Prefix.
	NoPrefix bool

	// RestartGuard makes a server that may have forgotten locks grant none for this long. All
	// clients of a prefix need the same: a shorter one ends the abstention for all. A server may
	// have forgotten locks if it was started anew without them, was flushed, or was promoted from a
	// replica. RestartGuard must be at least the longest TTL in use, and the longest time for which
	// a name is kept (ReleaseKeep, the window of a ratelimit): then all that was forgotten has
	// expired before anything is granted again. Tokens rise then, too, unless the clock was set
	// back, or one was granted that was further ahead of the clock than this, because of a floor
	// (see driver.Request.Floor; those of a quorum are a second ahead of its clients' clocks, and
	// more where clocks differ: an hour and a second at most). It costs some INFO for each run of a
	// script, and the first use of a prefix on a server waits as well. 0 means no guard. Not
	// available on a cluster.
	//
	// A master also abstains when its first replica attaches, and when the last one has been away
	// for repl-backlog-ttl (an hour by default): its history has another name then, as after a
	// promotion.
	RestartGuard time.Duration

	// MinReplicas is how many replicas must have confirmed an acquisition, a renewal, or a release
	// that keeps the name, before it counts (by WAIT). One that was not confirmed within
	// ReplicaTimeout is reported as unknown. While fewer replicas are connected and have reported
	// within 11 s, nothing is granted at all, and a request for a name that has no hold gets no
	// place. It costs an INFO for each run of a script. It makes it less likely that a failover
	// forgets locks, and does not rule it out. 0 means none. Not available on a cluster.
	MinReplicas int

	// ReplicaTimeout bounds the wait for replicas; 0 means 500 ms.
	ReplicaTimeout time.Duration
}

// A Store keeps locks in Redis. See the package comment for what it promises.
// Its methods may be called from many goroutines at once.
type Store struct {
	client         redis.UniversalClient
	ownsClient     bool // Close closes the client as well
	cluster        bool // the client is of a cluster
	sentinel       bool // the client finds its server by Sentinels
	honorsDeadline bool // the client ends a request at the deadline of its context
	prefix         string
	prefixHasTag   bool // the prefix has a hash tag
	options        Options
	counter, ahead string   // the keys of the tokens, without the tag of a slot
	common         string   // what the words of every run begin with: see lua/head.lua
	configErr      error    // returned by every call if the arguments of New are invalid
	senders        sync.Map // *batch.Queue[*call] by the address of a master, "" without a cluster
	listener       listener
	closed         atomic.Bool
}

var _ driver.Notifier = (*Store)(nil)

// maxTokens is the greatest number of tokens of one grant. More would take the counter ahead of the
// clock, at the rate of grants of a busy server.
const maxTokens = 8

// Client returns the client of the store. Commands of it are not bounded as those of the store are.
func (s *Store) Client() redis.UniversalClient { return s.client }

// Options returns the options of the store.
func (s *Store) Options() Options { return s.options }

// sentinelAddr is the address in the options of a client that finds its server by Sentinels, in
// place of one that is fixed.
const sentinelAddr = "FailoverClient"

// New returns a store that uses a client of the caller: a single server's, a Sentinel's or a
// cluster's. Nothing is dialed. The client must stay open until the Store is closed; Close does not
// close it. Its commands have the timeouts of the client, which must not be switched off; its
// retries are not used. With ContextTimeoutEnabled, which is advised, a lone call is quicker.
// Requests take the client's connections for pipelines, so that other work which uses up its pool,
// as blocking commands do, holds up no lock (unless PipelinePoolSize is negative).
//
// Every method but List returns by the deadline of its context, or after 3 s without one. List does
// so for each of its requests, if ContextTimeoutEnabled is set. A request that was sent goes on
// after a cancellation. Without ContextTimeoutEnabled it may also go on after the deadline, on
// another goroutine, until the client's own timeouts.
//
// Options that are out of bounds, and a client that cannot be trusted with locks, are reported by
// every call: [redis.Ring] moves a key to another server when one is down, and one with
// [redis.ClusterOptions].ClusterSlots may be of servers that are no cluster.
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
		s.honorsDeadline = client.Options().ContextTimeoutEnabled
		s.sentinel = client.Options().Addr == sentinelAddr
	case *redis.ClusterClient:
		s.cluster, s.honorsDeadline = true, client.Options().ContextTimeoutEnabled
	}
	s.prefixHasTag = hashTag(s.prefix) != ""
	s.configErr = s.checkOptions()
	s.listener.init(s.prefix)
	s.counter, s.ahead = s.prefix+counterSuffix, s.prefix+aheadSuffix
	s.common = fmt.Sprintf("%d %d ", millis(s.options.RestartGuard), s.options.MinReplicas)
	return s
}

func (s *Store) checkOptions() error {
	o := &s.options
	_, ring := s.client.(*redis.Ring)
	cluster, ok := s.client.(*redis.ClusterClient)
	switch {
	case s.client == nil:
		return fmt.Errorf("%w: the client is nil", driver.ErrInvalid)
	case ring:
		return fmt.Errorf("%w: a redis.Ring moves keys when a server is down, so that a lock would have two holders: "+
			"use a cluster, or a quorum of single servers", driver.ErrUnsupported)
	case ok && cluster.Options().ClusterSlots != nil:
		return fmt.Errorf("%w: a cluster client that is told its servers, as that of redis.NewFailoverClusterClient, may take single servers "+
			"for a cluster and count tokens in other keys: use redis.NewClusterClient, or redis.NewFailoverClient", driver.ErrUnsupported)
	case !isPlain(s.prefix):
		return fmt.Errorf("%w: the prefix has control characters, or is no UTF-8", driver.ErrInvalid)
	case o.RestartGuard < 0 || o.RestartGuard > driver.MaxTTL:
		return fmt.Errorf("%w: RestartGuard is not between 0 and %v", driver.ErrInvalid, driver.MaxTTL)
	case o.RestartGuard > 0 && s.cluster:
		return fmt.Errorf("%w: RestartGuard on a cluster", driver.ErrUnsupported)
	case o.MinReplicas > 0 && s.cluster:
		return fmt.Errorf("%w: MinReplicas on a cluster", driver.ErrUnsupported)
	case o.MinReplicas < 0 || o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout > requestBound/2:
		return fmt.Errorf("%w: MinReplicas is negative, or ReplicaTimeout not between 1ms and %v", driver.ErrInvalid, requestBound/2)
	}
	return nil
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	g := driver.Guarantees{
		Store:    "redis",
		Fencing:  true,
		Queue:    true,
		Limits:   true,
		Keep:     true,
		Tokens:   maxTokens,
		Crash:    driver.FateKept,
		Restart:  driver.FateForgotten, // It depends on the server's persistence.
		Failover: driver.FateForgotten, // Replication is asynchronous.
	}
	if s.options.RestartGuard > 0 {
		g.Restart = driver.FateFreed
	}
	return g
}

// Close implements [driver.Store]. It ends the notices, and closes the client if the store was
// opened from a URL.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.listener.close()
	if s.ownsClient {
		return s.client.Close()
	}
	return nil
}
