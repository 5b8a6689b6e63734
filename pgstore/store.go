package pgstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// The default table of locks.
const (
	DefaultSchema = "public"
	DefaultTable  = "distributed_locks"
)

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Schema and Table name the table of locks. "" means [DefaultSchema] and [DefaultTable]. All
	// programs that are to exclude each other need the same. The functions are in the schema of the
	// table. Those of a table with another name than the default have the name of the table and "_"
	// in front of theirs, as in jobs_acquire_lock. Table has at most 40 bytes.
	Schema string
	Table  string

	// NoListen turns off the connection that listens for notifications. The store has no queue then:
	// waiters try at intervals, and get the lock when no other client is in its queue. A pooler is
	// detected, and needs no NoListen.
	NoListen bool
}

// A Store keeps locks in a table of PostgreSQL. See the package comment for what it promises. Its
// methods may be called from many goroutines at once.
type Store struct {
	*olddriver.Adapter
	engine *engine
}

// blockTokens is the greatest number of tokens of one grant.
const blockTokens = 64

func newStore(e *engine) *Store { return &Store{olddriver.Adapt(e, blockTokens), e} }

// An engine is a store of the second edition.
type engine struct {
	pool         pool
	ownsPool     bool // Close closes the pool as well
	options      Options
	placeholders *strings.Replacer // of the table and its functions
	queries      queries
	configErr    error // returned by every call if the arguments of New are invalid
	guarantees   olddriver.Guarantees
	unprepared   atomic.Bool // statements are not prepared: there is a pooler in the path
	cannotListen atomic.Bool // for the same reason
	nameCache    nameCache
	notifier     notifier
	batches      *batch.Queue[*rowChange]

	ctx        context.Context // ends at close
	stop       context.CancelFunc
	mu         sync.Mutex // for closed and background.Add
	closed     bool
	background sync.WaitGroup

	spare chan struct{} // holds an element while there is a connection beside the pool
}

var _ olddriver.Notifier = (*engine)(nil)

// New returns a store that uses a pool of the caller. Nothing is dialed. The pool must stay open
// until the Store is closed; Close does not close it. Every call takes a connection from it for one
// statement, and none is kept. While other work uses up the pool, locks are renewed on a connection
// that is made for it, unless the pool prepares its connections for each use (PrepareConn,
// BeforeAcquire). Acquisitions and releases wait for the pool. One more connection, which is not of
// the pool, listens for notifications after the first wait.
//
// Options that cannot be used are reported by every call.
func New(pool *pgxpool.Pool, opts *Options) *Store { return newStore(newPoolEngine(pool, opts)) }

func newPoolEngine(pool *pgxpool.Pool, opts *Options) *engine {
	if pool == nil {
		return newEngine(nil, opts)
	}
	return newEngine(pgxPool{pool}, opts)
}

// NewDB returns a store that uses a pool of package database/sql, as [New] does. The driver must be
// pgx (package stdlib). Bound the pool with SetMaxOpenConns: without that, concurrent calls take all
// the connections that the server has. While other work uses up the pool, locks are not renewed:
// give them a pool of their own.
func NewDB(db *sql.DB, opts *Options) *Store { return newStore(newDBEngine(db, opts)) }

// Migrate sets up the table and the functions, in one transaction. Many processes may call it at
// once, each time they start: if there is nothing to do it does nothing.
//
// Migrate compares the table with its own each time. It refuses one that is another (a column, a
// type, a default, NOT NULL, a key or a constraint, triggers, rules, row security, inheritance): the
// error names the difference. A table that a development version of this package has made is
// refused, too, and has to be made anew. Tables and functions must belong to the user, the owner of
// the schema or of the database, or a superuser. Others are refused, since they could run code with
// the rights of all users that lock: migrate as their owner. If there is nothing to do, those of a
// migration role are accepted, provided that the schema is not one in which everybody may create, or
// that role was granted CREATE by name. Package doctor names the users that may create in the
// schema, and functions of others that have the names of this package's with other parameters.
//
// The user must be allowed to create tables and functions in the schema, and the schema, if it does
// not exist. Other users of the locks need not be.
func (s *Store) Migrate(ctx context.Context) error { return s.engine.Migrate(ctx) }

// WithConn calls f with a connection of the store's pool, for statements of the caller.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	return s.engine.WithConn(ctx, f)
}

// ServerVersion returns the name and version of the server, as in "PostgreSQL 15.18".
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	return s.engine.ServerVersion(ctx)
}

// Table returns the name of the table, quoted for SQL.
func (s *Store) Table() string { return s.engine.expandSQL("@table@") }

func newDBEngine(db *sql.DB, opts *Options) *engine {
	if db == nil {
		return newEngine(nil, opts)
	}
	s := newEngine(sqlPool{db}, opts)
	if _, ok := db.Driver().(*stdlib.Driver); !ok && s.configErr == nil {
		s.configErr = fmt.Errorf("%w: the driver of database/sql is not that of pgx (package stdlib)", driver.ErrInvalid)
	}
	return s
}

func newEngine(pool pool, opts *Options) *engine {
	if opts == nil {
		opts = &Options{}
	}
	s := &engine{pool: pool, options: *opts, spare: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	o := &s.options
	s.configErr = o.setDefaults()
	s.placeholders = o.placeholders()
	if s.configErr == nil && pool == nil {
		s.configErr = fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	}
	s.queries = s.buildQueries()
	s.guarantees = s.buildGuarantees()
	s.notifier.channel = "holdfast_" + strings.ToLower(rand.Text())
	s.notifier.waiters = map[string]waitingOwner{}
	s.batches = s.newBatches()
	return s
}

// setDefaults fills in the defaults, and returns an error for options that cannot be used.
func (o *Options) setDefaults() error {
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
	return nil
}

// buildGuarantees returns what the store guarantees.
func (s *engine) buildGuarantees() olddriver.Guarantees {
	return olddriver.Guarantees{
		Store:       "postgres",
		Scope:       olddriver.ScopeNetwork,
		Fencing:     true,
		HolderCrash: olddriver.RecoveryTTL,
		Restart:     olddriver.FateKept,
		Failover:    olddriver.FateForgotten, // Replication is asynchronous.
		Fair:        !s.options.NoListen,
		Shared:      true,
		Limited:     true,
		Detached:    true,
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
	}
}

// Guarantees implements [olddriver.Store].
func (s *engine) Guarantees() olddriver.Guarantees { return s.guarantees }

// Close implements [olddriver.Store]. It ends the notices, waits until the waiters for released names
// have been notified, and closes the pool if the store was opened from a URL.
func (s *engine) Close() error {
	s.mu.Lock()
	wasClosed := s.closed
	s.closed = true
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	s.stop()
	s.background.Wait()
	s.notifier.running.Wait()
	if s.ownsPool {
		s.pool.close()
	}
	return nil
}

// runInBackground runs f in the background, unless the store is closed, and reports whether it does.
// Close waits for f.
func (s *engine) runInBackground(f func()) bool {
	if !s.beginBackground() {
		return false
	}
	go func() {
		defer s.background.Done()
		f()
	}()
	return true
}

// beginBackground makes Close wait until the caller has called s.background.Done. It returns false
// if the store is closed.
func (s *engine) beginBackground() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.background.Add(1)
	}
	return !s.closed
}

// checkUsable returns the error of a call that cannot be made.
func (s *engine) checkUsable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return pgclient.PreconditionErr(ctx, closed, s.configErr)
}
