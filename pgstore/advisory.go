package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// AdvisoryOptions change how a store of advisory locks works. The zero value and
// nil are the defaults.
type AdvisoryOptions struct {
	// Keys makes the keys of locks from their names; nil means
	// SHA256Keys(""). All programs that are to exclude each other need the same.
	Keys KeyScheme

	// TokenSequence names the sequence that fencing tokens are taken from, as in
	// "holdfast_tokens" or "app.tokens": [AdvisoryStore.Migrate] creates it. All
	// programs that lock the same names need the same. "" means no tokens. The
	// server's disk is waited for once in 32 grants.
	TokenSequence string

	// SessionPooled says that a pooler in the path gives every connection a
	// server process of its own until it is closed, as PgBouncer does with
	// pool_mode=session. A pooler that gives it one for each transaction would
	// grant a lock twice. Without SessionPooled every pooler is refused.
	SessionPooled bool

	// MaxLocks bounds the locks that the Store holds at a time. Advisory locks
	// live in a table of fixed size that all sessions of the server share: when
	// it is full, other people's statements fail as well. A name that is waited
	// for counts as one. 0 means half of it, as the server's settings give it.
	MaxLocks int

	// MaxConns bounds the connections; 0 means 4. Each TTL in use takes a
	// connection of its own, since the server can end a session that is silent
	// only as a whole. When there are more TTLs than connections, some locks
	// share one with locks of a longer TTL, and a holder that hangs keeps them
	// for that long.
	MaxConns int

	// NoListen does without the connection that listens for releases: waiters
	// try at intervals.
	NoListen bool
}

// An AdvisoryStore keeps locks as advisory locks of PostgreSQL sessions. See
// [NewAdvisory]. Its methods may be called from many goroutines at once.
type AdvisoryStore struct {
	pool       *pgxpool.Pool
	owned      bool // Close closes the pool as well
	options    AdvisoryOptions
	keys       KeyScheme
	statements map[string]string // that every session prepares, by name
	misuse     error             // what every call returns if NewAdvisory was given what it cannot use
	watcher    watcher
	marks      atomic.Int32  // of the watcher, at the server
	firstLook  time.Duration // see the constant

	ctx     context.Context // ends at Close
	stop    context.CancelFunc
	running sync.WaitGroup // goroutines

	mu       sync.Mutex
	closed   bool
	claims   map[Key]*claim
	sessions []*session
	dials    map[time.Duration]*dial // under way, by the limit of the session
	ghosts   []ghost
	capacity int // of the server's lock table, 0 before it is known
	losses   []*func(name, owner string)
}

var (
	_ driver.Alarmer = (*AdvisoryStore)(nil)
	_ driver.Watcher = (*AdvisoryStore)(nil)
)

// NewAdvisory returns a store of advisory locks, which need no table and write
// nothing: an acquisition and a release take about as long as SELECT 1. The pool
// says how to connect; the locks live on connections of the Store's own, usually
// one, that are not counted in the pool. Nothing is dialled before the first
// call. The pool must stay open until the Store is closed.
//
// # Guarantees
//
// Exclusion among all sessions of one database that lock the same keys, those
// of other programs too, as long as the server runs. A lock lives in the session
// that took it: it is free as soon as the server sees the end of the connection,
// so at once when its holder crashes, and the Store sees that end within
// milliseconds too ([AdvisoryStore.OnLoss]). A holder that hangs, or whose
// network is cut, is ended by the server when its TTL has run out
// (idle_session_timeout, PostgreSQL 14 or later; counted in whole milliseconds
// and never as less than a second).
//
// Only pg_try_advisory_lock and its like are used: nothing ever waits inside the server, where
// it would hold up vacuum and CREATE INDEX CONCURRENTLY. Every unlock is
// verified. A connection that is in doubt is closed, and the session that may
// still be there is ended before another is used, so that nobody is locked out
// by himself.
//
// A renewal asks the session whether it is alive, once for all its locks. The
// locks of one session stand and fall together, and cannot be renewed or
// released through another Store: AcquireRequest.Detached is not supported, nor
// are Lookup, List, Break, Metadata and Keep, since the server keeps nothing of a
// lock but its key. [AdvisoryStore.Locks] shows who holds and who waits.
//
// Waiters are woken by LISTEN and NOTIFY, on one more connection for each Store
// that somebody waits in. While he waits, and for a second afterwards, that
// connection holds a shared lock on a second key (a pair of integers, the first
// of them negative, from a hash of the lock's key); only a release that finds it
// notifies, by a statement of its own afterwards, on the connection that listens
// if there is one that answers, and else on one of the pool. Other programs do
// not notify, nor does the server when a session ends: waiters find that out when
// they have waited as long again as before, after 2 s at most. If the connection
// that listens hangs, a waiter gives it a request timeout of his Client, 5 s at
// most, and then tries at intervals.
//
// # What can go wrong
//
// Whatever ends a session frees its locks while their holder may still be at
// work: pg_terminate_backend, a crash or restart of the server, a failover,
// something in the network that resets connections. The holder learns of it in
// milliseconds where the end of the connection reaches him, and at his deadline
// where it does not; until then two may hold one lock, told apart by tokens
// only if there is a TokenSequence. A program that must not run twice in that
// case is better served by [New].
//
// A transaction-level pooler in the path would grant a lock twice: the Store
// finds out when it connects, and refuses. A standby has locks of its own, and
// is refused.
//
// With PostgreSQL 13 a holder that hangs keeps its locks until it ends.
//
// At the end of each statement the server looks through all locks of the
// session: each thousand that is held makes every statement about a tenth of a
// millisecond slower. The lease table has no such cost.
//
// # Server set-up
//
// None without tokens; for them, the sequence. The user may need
// pg_read_all_stats to see all columns of [AdvisoryStore.Locks].
//
// # URL
//
//	postgres+advisory://[user:password@]host[:port]/database
//
// with the parameters of libpq (sslmode, target_session_attrs and so on), its
// environment variables, and
//
//	keys            raw, hashtext, hashtextextended, with_advisory_lock or good_job:
//	                the key scheme, default sha256
//	namespace       of the keys of sha256, default none
//	tokens          AdvisoryOptions.TokenSequence
//	session_pooled  AdvisoryOptions.SessionPooled, true or false
//	max_locks       AdvisoryOptions.MaxLocks
//	max_conns       AdvisoryOptions.MaxConns
//	listen          false for AdvisoryOptions.NoListen
func NewAdvisory(pool *pgxpool.Pool, opts *AdvisoryOptions) *AdvisoryStore {
	if opts == nil {
		opts = &AdvisoryOptions{}
	}
	s := &AdvisoryStore{
		pool:      pool,
		options:   *opts,
		keys:      opts.Keys,
		firstLook: firstLook,
		claims:    map[Key]*claim{},
		dials:     map[time.Duration]*dial{},
	}
	if s.keys == nil {
		s.keys = SHA256Keys("")
	}
	if s.options.MaxConns == 0 {
		s.options.MaxConns = 4
	}
	s.statements = advisoryStatements(sequenceName(opts.TokenSequence))
	s.misuse = s.check()
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.watcher.init(s.ctx, s.listen)
	return s
}

func (s *AdvisoryStore) check() error {
	switch o := &s.options; {
	case s.pool == nil:
		return fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	case o.MaxConns < 0 || o.MaxLocks < 0:
		return fmt.Errorf("%w: MaxConns or MaxLocks is negative", driver.ErrInvalid)
	case strings.Contains(o.TokenSequence, "\x00"):
		return fmt.Errorf("%w: the name of the sequence has a NUL in it", driver.ErrInvalid)
	}
	return nil
}

// sequenceName quotes the name of a sequence, "" for none.
func sequenceName(name string) string {
	if name == "" {
		return ""
	}
	return pgx.Identifier(strings.Split(name, ".")).Sanitize()
}

// Guarantees implements [driver.Store].
func (s *AdvisoryStore) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:       "postgres advisory",
		Scope:       driver.ScopeNetwork,
		Blocking:    driver.BlocksToContext,
		Fencing:     s.options.TokenSequence != "",
		HolderCrash: driver.RecoveryAtOnce,
		Restart:     driver.FateForgotten, // Its holders learn of it a moment later.
		Failover:    driver.FateForgotten,
		Push:        !s.options.NoListen,
	}
}

// Close implements [driver.Store]. It ends the sessions, and returns when the
// server has let go of their locks, or has not answered for a second. It closes
// the pool if the Store was opened from a URL.
func (s *AdvisoryStore) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	sessions := s.sessions
	s.mu.Unlock()
	s.stop()
	for _, on := range sessions {
		s.running.Go(on.leave)
	}
	s.watcher.close()
	s.running.Wait()
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// OnLoss has f called as soon as the Store learns that a hold is lost, other
// than by its expiry: when the connection ends, that is within milliseconds of
// pg_terminate_backend or a restart of the server. It is called once for each
// such hold, on a goroutine of the Store, and must not block. A hold that was
// released is not lost. The calls end with stop.
func (s *AdvisoryStore) OnLoss(f func(name, owner string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener := &f
	s.losses = append(slices.Clone(s.losses), listener)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.losses = slices.DeleteFunc(slices.Clone(s.losses), func(other *func(name, owner string)) bool { return other == listener })
	}
}

// usable returns the error of a call that cannot be made.
func (s *AdvisoryStore) usable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return refusal(ctx, closed, s.misuse)
}
