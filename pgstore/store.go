package pgstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// The table of locks, unless Options say otherwise.
const (
	DefaultSchema = "public"
	DefaultTable  = "distributed_locks"
)

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Schema and Table name the table of locks; "" means [DefaultSchema] and
	// [DefaultTable]. All programs that are to exclude each other need the
	// same. The functions are in the schema of the table; those of a table
	// with another name than the default have the name of the table and "_" in
	// front of theirs, as in jobs_acquire_lock. Table has at most 40 bytes.
	Schema string
	Table  string

	// SynchronousCommit is the server's setting synchronous_commit for every
	// change but a plain release (see DurableRelease); "" leaves it as it is for
	// the user of the connection ("on" unless somebody has changed it).
	//
	//	off           No commit waits for the disk: several times as many locks
	//	              a second. A crash of the server forgets up to about a
	//	              second of acquisitions: two may hold one lock then.
	//	local         Waits for the server's own disk. A failover to a standby
	//	              may forget locks.
	//	remote_write  Waits until synchronous standbys have got it, but not for
	//	              their disks: only a crash of both at once forgets it.
	//	on            Waits for the disks of the server and of its synchronous
	//	              standbys, if it has any.
	//	remote_apply  As on, and until the standbys show it.
	SynchronousCommit string

	// DurableRelease waits for the disk, and for standbys, when a lock is
	// released, as an acquisition does. Without it a plain release does not
	// wait, which saves half of the waiting that a lock costs. A crash of the
	// server within three times its wal_writer_delay after a release (0.6 s
	// unless somebody has changed that), or a failover to a standby that has not
	// got the release, may then bring the lock back: the name is taken until its
	// TTL runs out, by nobody. No lock is granted twice by it. A release that
	// keeps the name, and Break, always wait.
	DurableRelease bool

	// RequireStandby refuses to grant or renew anything while the server's
	// synchronous_standby_names is empty, so that no lock is lost when a
	// synchronous standby is promoted. SynchronousCommit "" means "on" then.
	// While no standby answers, the server holds up every commit, and
	// acquisitions end with their bound, their outcome unknown. Nobody but you
	// can see to it that it is a synchronous standby that is promoted.
	RequireStandby bool

	// NoListen does without the connection that listens for releases: waiters
	// try at intervals. Behind a pooler that is found out, and need not be said.
	NoListen bool
}

// A Store keeps locks in a table of PostgreSQL. See the package comment for
// what it promises. Its methods may be called from many goroutines at once.
type Store struct {
	pool    pool
	owned   bool // Close closes the pool as well
	options Options
	names   *strings.Replacer // of the table and its functions
	text    texts
	misuse  error // what every call returns if New was given what it cannot use
	can     driver.Guarantees
	plain   atomic.Bool // statements are not prepared: there is a pooler in the path
	seen    memory
	watcher watcher
	leaving gatherer

	ctx        context.Context // ends at close
	stop       context.CancelFunc
	mu         sync.Mutex // for closed and background.Add
	closed     bool
	background sync.WaitGroup
}

var _ driver.Watcher = (*Store)(nil)

// New returns a store that uses a pool of the caller. Nothing is dialled. The
// pool must stay open until the Store is closed; Close does not close it. Every
// call takes a connection from it for one statement, and none is kept, so that a
// pool that is shared with work that can use it up delays renewals: give
// locks a pool of their own then. One more connection, which is not of the
// pool, listens for releases once somebody waits for one.
//
// Options that cannot be used are reported by every call.
func New(pool *pgxpool.Pool, opts *Options) *Store {
	if pool == nil {
		return newStore(nil, opts)
	}
	return newStore(pgxPool{pool}, opts)
}

// NewDB returns a store that uses a pool of package database/sql, as [New] does.
// The driver should be pgx (package stdlib): with another one waiters try at
// intervals, and a call to a server that hangs comes back when that driver lets
// it, however short its context. Bound the pool with SetMaxOpenConns: without
// that, calls made at the same time take all the connections that the server has.
func NewDB(db *sql.DB, opts *Options) *Store {
	if db == nil {
		return newStore(nil, opts)
	}
	return newStore(sqlPool{db}, opts)
}

func newStore(pool pool, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{pool: pool, options: *opts}
	s.ctx, s.stop = context.WithCancel(context.Background())
	o := &s.options
	if o.RequireStandby && o.SynchronousCommit == "" {
		o.SynchronousCommit = "on"
	}
	s.misuse = o.check()
	s.names = o.names()
	if s.misuse == nil && pool == nil {
		s.misuse = fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	}
	s.text = s.texts()
	s.can = s.promise()
	s.watcher.init(s.ctx, s.listen)
	s.leaving.init(s.releaseTogether, s.spawn)
	return s
}

// check fills in the defaults, and says what cannot be used.
func (o *Options) check() error {
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Table == "" {
		o.Table = DefaultTable
	}
	if len(o.Table) > maxTable || len(o.Schema) > maxIdentifier || strings.Contains(o.Schema+o.Table, "\x00") {
		return fmt.Errorf("%w: the name of the table has more than %d bytes, or the schema's more than %d, or there is a NUL in it",
			driver.ErrInvalid, maxTable, maxIdentifier)
	}
	levels := []string{"off", "local", "remote_write", "on", "remote_apply"}
	if o.SynchronousCommit != "" && !slices.Contains(levels, o.SynchronousCommit) {
		return fmt.Errorf("%w: SynchronousCommit is none of %s", driver.ErrInvalid, strings.Join(levels, ", "))
	}
	if o.RequireStandby && slices.Contains(levels[:2], o.SynchronousCommit) {
		return fmt.Errorf("%w: RequireStandby with SynchronousCommit %s, which waits for no standby", driver.ErrInvalid, o.SynchronousCommit)
	}
	return nil
}

// promise is what the store guarantees.
func (s *Store) promise() driver.Guarantees {
	g := driver.Guarantees{
		Store:       "postgres",
		Scope:       driver.ScopeNetwork,
		Blocking:    blocking(s.pool),
		Fencing:     true,
		HolderCrash: driver.RecoveryTTL,
		Restart:     driver.FateKept,
		Failover:    driver.FateForgotten, // Replication is asynchronous.
		Push:        !s.options.NoListen && s.pool != nil && s.pool.canListen(),
		Detached:    true,
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
	}
	if s.options.SynchronousCommit == "off" {
		g.Restart = driver.FateForgotten
	}
	if s.options.RequireStandby {
		g.Failover = driver.FateKept
	}
	return g
}

// blocking is how long a call can take: with pgx not longer than its context.
func blocking(p pool) driver.Blocking {
	if p != nil && p.canListen() {
		return driver.BlocksToDeadline
	}
	return driver.BlocksForLong
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees { return s.can }

// Close implements [driver.Store]. It ends the watches, waits until those who
// wait for what was released have been told, and closes the pool if the store
// was opened from a URL.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	s.stop()
	s.watcher.close()
	s.background.Wait()
	if s.owned {
		s.pool.close()
	}
	return nil
}

// spawn runs f in the background, unless the store is closed, and reports whether
// it does. Close waits for it.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.background.Go(f)
	}
	return !s.closed
}

// usable returns the error of a call that cannot be made.
func (s *Store) usable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return refusal(ctx, closed, s.misuse)
}

// refusal returns why a call is not even begun, nil if it can be.
func refusal(ctx context.Context, closed bool, misuse error) error {
	switch {
	case closed:
		return driver.ErrClosed
	case misuse != nil:
		return misuse
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrNotApplied, ctx.Err())
	}
	return nil
}
