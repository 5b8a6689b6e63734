package pgstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/notices"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// DefaultSchema is the schema of the tables and functions unless Options name another.
const DefaultSchema = "holdfast"

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Schema is that of the tables and functions. "" means [DefaultSchema]. All programs that are
	// to exclude each other need the same. It belongs to the locks alone: [Store.Migrate] makes it.
	Schema string

	// Listen is the URL of the same database at the server itself, if the connections of the
	// pool lead to a pooler. The store listens for notices on one connection there, and renews
	// locks on another one. "" means the address of the pool.
	Listen string
}

// A Store keeps locks in tables of PostgreSQL. See the package comment for what it promises. Its
// methods may be called from many goroutines at once.
type Store struct {
	pool       *pgxpool.Pool
	ownsPool   bool            // Close closes the pool as well
	spare      *pgxpool.Pool   // makes one connection for acquireInTime, and that which listens
	direct     *pgx.ConnConfig // of Options.Listen, or nil
	schema     string
	quoted     string // the schema, for SQL
	configErr  error  // returned by every call if the arguments of New are invalid
	channel    string // of this Store, random: it listens on that for all of its entries
	notices    notices.Mailbox
	listening  sync.Once
	acquires   *batch.Queue[*call]
	releases   *batch.Queue[*call]
	unprepared atomic.Bool  // statements are not prepared, for a pooler in the path
	sweptAt    atomic.Int64 // Unix time

	ctx        context.Context // ends at Close
	stop       context.CancelFunc
	mu         sync.Mutex // for stop and background.Go
	background sync.WaitGroup
}

var _ driver.Notifier = (*Store)(nil)

// New returns a store that uses a pool of the caller. Nothing is dialed. The pool must stay open
// until the Store is closed; Close does not close it. Every call takes a connection from it for one
// statement or two, and none is kept. While other work uses up the pool, locks are renewed on one
// connection beside it. Acquisitions and releases wait for the pool. One more connection, which is
// not of the pool, listens for notices after the first acquisition.
//
// Options that cannot be used are reported by every call.
func New(pool *pgxpool.Pool, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{pool: pool, channel: "holdfast_" + strings.ToLower(rand.Text()), notices: notices.Mailbox{Tag: tagOf}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.schema, s.configErr = opts.schema()
	s.quoted = pgx.Identifier{s.schema}.Sanitize()
	s.acquires, s.releases = s.newQueue(acquireText, s.acquireArgs), s.newQueue(releaseText, releaseArgs)
	if opts.Listen != "" {
		config, err := pgx.ParseConfig(opts.Listen)
		if err != nil {
			s.configErr = cmp.Or(s.configErr, fmt.Errorf("%w: the address to listen at: %s", driver.ErrInvalid, pgclient.ParseErrReason(err)))
		}
		s.direct = config
	}
	if pool == nil {
		s.configErr = cmp.Or(s.configErr, fmt.Errorf("%w: the pool is nil", driver.ErrInvalid))
		return s
	}
	config := pool.Config()
	// That mode describes an unnamed statement and executes it in two transactions. Between
	// them a pooler may give the server process to another client.
	s.unprepared.Store(config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec)
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	if s.direct != nil {
		config.ConnConfig, config.BeforeConnect, config.AfterConnect = s.direct, nil, nil
	}
	config.ConnConfig.OnNotification = nil // The listener waits for notifications.
	spare, err := pgxpool.NewWithConfig(context.Background(), config)
	s.spare, s.configErr = spare, cmp.Or(s.configErr, err)
	return s
}

// NewDB returns a store that reaches the server as a pool of package database/sql does, by a pool
// of its own (of pgx, with the default size). The driver of db must be pgx (package stdlib). To
// make a connection, the store takes one of db for a moment and copies its configuration. That of
// the last one serves if db has none free within a second.
func NewDB(db *sql.DB, opts *Options) *Store {
	config, err := pgxpool.ParseConfig("host=localhost")
	if db == nil || err != nil {
		s := New(nil, opts)
		s.configErr = cmp.Or(err, s.configErr)
		return s
	}
	var last atomic.Pointer[pgx.ConnConfig]
	config.BeforeConnect = func(ctx context.Context, next *pgx.ConnConfig) error {
		known, patience := last.Load(), time.Minute
		if known != nil {
			patience = time.Second
		}
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		c, err := db.Conn(limited)
		switch {
		case err != nil && known != nil && limited.Err() != nil:
			*next = *known.Copy()
			return nil
		case err != nil:
			return err
		}
		defer c.Close()
		return c.Raw(func(raw any) error {
			conn, ok := raw.(*stdlib.Conn)
			if !ok {
				return fmt.Errorf("%w: the driver of database/sql is not that of pgx (package stdlib)", driver.ErrInvalid)
			}
			*next = *conn.Conn().Config()
			next.OnNotification = nil
			if next.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec { // See New.
				next.DefaultQueryExecMode = pgx.QueryExecModeExec
			}
			last.Store(next.Copy())
			return nil
		})
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	s := New(pool, opts)
	s.ownsPool, s.configErr = true, cmp.Or(err, s.configErr)
	return s
}

// Schema returns the schema of the locks, quoted for SQL.
func (s *Store) Schema() string { return s.quoted }

// Listens reports whether there is an address for notices beside the pool (Options.Listen).
func (s *Store) Listens() bool { return s.direct != nil }

// WithConn calls f with a connection of the store's pool, for statements of the caller.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	return s.run(ctx, s.pool.Acquire, f)
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:    "postgres",
		Fencing:  true,
		Queue:    true,
		Limits:   true,
		Keep:     true,
		Tokens:   driver.MaxTokens,
		Crash:    driver.FateKept,
		Restart:  driver.FateKept,
		Failover: driver.FateForgotten, // Replication is asynchronous.
	}
}

// Close implements [driver.Store]. It ends the notices, and closes the pool if that is the store's
// own.
func (s *Store) Close() error {
	s.mu.Lock()
	wasClosed := s.ctx.Err() != nil
	s.stop()
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	s.background.Wait()
	if s.spare != nil {
		pgclient.ClosePool(s.spare)
	}
	if s.ownsPool {
		pgclient.ClosePool(s.pool)
	}
	return nil
}

// goBackground runs f in the background, unless the store is closed. Close waits for f.
func (s *Store) goBackground(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.background.Go(f)
	}
}

// checkUsable returns the error of a call that cannot be made.
func (s *Store) checkUsable(ctx context.Context) error {
	return pgclient.PreconditionErr(ctx, s.ctx.Err() != nil, s.configErr)
}
