package advisory

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/olddriver/notices"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Options change how a store of advisory locks works. The zero value and nil are the
// defaults.
type Options struct {
	// Keys makes the keys of locks from their names. nil means SHA256Keys(""). All programs that
	// are to exclude each other need the same Keys.
	Keys KeyScheme

	// TokenSequence names the sequence that fencing tokens are drawn from, as in "app.tokens" or
	// "holdfast_tokens". [Store.Migrate] creates it. All programs that lock the same names
	// need the same. A name without a schema is searched for in the search_path: name a schema in
	// which nobody else may create. "" means no tokens. One grant in 32 waits for the server's
	// disk.
	TokenSequence string

	// SessionPooled means that a pooler in the path gives every connection a server process of its
	// own until the connection is closed, as PgBouncer does with pool_mode=session. A pooler that
	// assigns a process for each transaction would grant a lock twice. Without SessionPooled every
	// pooler is refused.
	SessionPooled bool

	// MaxLocks bounds the locks that the Store holds at a time. Advisory locks live in a table of
	// fixed size that all sessions of the server share: when it is full, the statements of other
	// programs fail as well. A name with waiters counts as one. 0 means half of the table, as the
	// server's settings give its size.
	MaxLocks int
}

// A Store keeps locks as advisory locks of PostgreSQL sessions. See
// [New]. Its methods may be called from many goroutines at once.
type Store struct {
	*olddriver.Adapter
	engine *engine
}

func newStore(e *engine) *Store { return &Store{olddriver.Adapt(e, 1), e} }

// An engine is a store of the second edition.
type engine struct {
	pool             *pgxpool.Pool
	ownsPool         bool // Close closes the pool as well
	options          Options
	keys             KeyScheme
	statements       map[string]string // that every session prepares, by name
	configErr        error             // returned by every call if the arguments of New are invalid
	notices          notices.Registry
	firstSignalDelay time.Duration                                // see the constant
	dialListener     func(context.Context) (*markListener, error) // openListener, except in tests
	listenOnce       sync.Once                                    // starts to listen, for the first waiter

	ctx     context.Context // ends at Close
	stop    context.CancelFunc
	running sync.WaitGroup // goroutines

	mu       sync.Mutex
	closed   bool
	leases   map[Key][]*lease // oldest first
	sessions []*session
	dial     *sessionDial // under way, or nil
	orphans  []orphan
	capacity int // of the server's lock table; 0 before it is known
	waiters  map[Key]map[ownedName]*waiter

	listening     *markListener // see setListener
	listenErr     error
	listenChanged chan struct{} // closed and replaced when they change
}

var _ olddriver.Notifier = (*engine)(nil)

// New returns a store of advisory locks. The pool supplies the settings of connections. The locks
// live on connections of the Store's own, usually one, that are not counted in the pool. Nothing is
// dialed before the first call. The pool must stay open until the Store is closed. Options that
// cannot be used are reported by every call.
func New(pool *pgxpool.Pool, opts *Options) *Store { return newStore(newEngine(pool, opts)) }

// Lookup implements [driver.Store], as far as the server's data allow. A hold of this Store is
// described in full. For any other session that has the key, of any program, Holder is the
// application_name and the process, and nothing else is known; in particular neither its token nor
// how long it will last. A session with several shared holds of the name is one Record. Those of
// this Store come first.
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return s.Adapter.Lookup(ctx, name)
}

// Notify implements [driver.Notifier]. The notice of a lost hold comes when its connection ends,
// that is within milliseconds of pg_terminate_backend or a restart of the server. The Store waits
// for f while it closes, and while it reads the replies of a server.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.Adapter.Notify(f)
}

// Locks yields the advisory locks of the database, of all programs, and their waiters. It is a
// snapshot for people and tools, read through the pool in one statement that goes through the whole
// lock table of the server: do not call it many times a second. The last thing that it yields may
// be an error.
func (s *Store) Locks(ctx context.Context) iter.Seq2[Lock, error] { return s.engine.Locks(ctx) }

// Migrate creates the sequence of Options.TokenSequence if it does not exist. Every user
// that locks needs USAGE, SELECT and UPDATE on it. Many programs may call Migrate at once. Without
// a TokenSequence it does nothing. Migrate refuses a sequence that does not rise. It also refuses
// one with an owner that could set it back: its owner must be the user, the owner of the schema or
// of the database, or a superuser.
func (s *Store) Migrate(ctx context.Context) error { return s.engine.Migrate(ctx) }

// Connections returns duplicates of the descriptors of the connections of sessions that hold locks
// now. The caller closes them, and must neither read nor write them.
//
// It is for programs that hand their locks to a child. The server ends a session, and with it the
// locks, when no process has its connection open any more. A process that was given a duplicate
// beforehand keeps the locks in force if this one is killed, until it closes the duplicate, or
// until the server's idle_session_timeout, which is the TTL (PostgreSQL 14 and later). A duplicate
// does not keep a connection that the server or the network ends. On Windows Connections returns an
// error.
func (s *Store) Connections() ([]*os.File, error) { return s.engine.Connections() }

// Options returns the options of the store.
func (s *Store) Options() Options { return s.engine.options }

// ServerVersion returns the name and version of the server, as in "PostgreSQL 15.18".
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	return s.engine.ServerVersion(ctx)
}

// WithConn calls f with a connection that is made as those for locks are, and closed then.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	return s.engine.WithConn(ctx, f)
}

func newEngine(pool *pgxpool.Pool, opts *Options) *engine {
	if opts == nil {
		opts = &Options{}
	}
	s := &engine{
		pool:             pool,
		options:          *opts,
		keys:             opts.Keys,
		firstSignalDelay: firstSignalDelay,
		leases:           map[Key][]*lease{},
		waiters:          map[Key]map[ownedName]*waiter{},
		listenChanged:    make(chan struct{}),
	}
	if s.keys == nil {
		s.keys = SHA256Keys("")
	}
	s.statements = lockStatements(sequenceName(opts.TokenSequence))
	s.configErr = s.checkOptions()
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.dialListener = s.openListener
	return s
}

func (s *engine) checkOptions() error {
	switch o := &s.options; {
	case s.pool == nil:
		return fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	case o.MaxLocks < 0:
		return fmt.Errorf("%w: MaxLocks is negative", driver.ErrInvalid)
	case strings.Contains(o.TokenSequence, "\x00"):
		return fmt.Errorf("%w: the name of the sequence has a NUL in it", driver.ErrInvalid)
	}
	return nil
}

// sequenceName quotes the name of a sequence. It returns "" for "".
func sequenceName(name string) string {
	if name == "" {
		return ""
	}
	return pgx.Identifier(strings.Split(name, ".")).Sanitize()
}

// Guarantees implements [olddriver.Store].
func (s *engine) Guarantees() olddriver.Guarantees {
	return olddriver.Guarantees{
		Store:       "postgres advisory",
		Scope:       olddriver.ScopeNetwork,
		Fencing:     s.options.TokenSequence != "",
		HolderCrash: olddriver.RecoveryAtOnce,
		Restart:     olddriver.FateForgotten, // Its holders are notified a moment later.
		Failover:    olddriver.FateForgotten,
		Shared:      true,
	}
}

// Close implements [olddriver.Store]. It ends the sessions, and returns when the server has released
// their locks, or has not replied for a second. It closes the pool if the Store was opened from a
// URL.
func (s *engine) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	sessions := s.sessions
	s.mu.Unlock()
	s.stop()
	for _, sess := range sessions {
		s.running.Go(sess.closeGracefully)
	}
	s.running.Wait()
	if s.ownsPool {
		pgclient.ClosePool(s.pool)
	}
	return nil
}

// Notify implements [olddriver.Notifier].
func (s *engine) Notify(f func(olddriver.Notice)) (stop func()) { return s.notices.Notify(f) }

// checkUsable returns the error of a call that cannot be made.
func (s *engine) checkUsable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return pgclient.PreconditionErr(ctx, closed, s.configErr)
}

func (s *engine) ServerVersion(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	var number string
	if err := s.pool.QueryRow(ctx, pgclient.VersionQuery).Scan(&number); err != nil {
		return "", fmt.Errorf("read the version of the server: %w", err)
	}
	return "PostgreSQL " + number, nil
}
