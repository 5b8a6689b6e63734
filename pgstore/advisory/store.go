package advisory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/notices"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Options change how a store of advisory locks works. The zero value and nil are the defaults.
type Options struct {
	// Keys makes the keys of locks from their names. nil means SHA256Keys(""). All programs that
	// are to exclude each other need the same Keys.
	Keys KeyScheme

	// TokenSequence names the sequence that fencing tokens are drawn from, as in "app.tokens".
	// [Store.Migrate] creates it. All programs that lock the same names need the same. A name
	// without a schema is searched for in the search_path: name a schema in which nobody else may
	// create. "" means no tokens. One grant in 32 waits for the server's disk.
	TokenSequence string

	// MaxWaiters bounds the sessions that wait in the server, one for each owner that waits.
	// Further owners try at intervals. 0 means 8.
	MaxWaiters int
}

// A Store keeps locks as advisory locks of PostgreSQL sessions. See [New]. Its methods may be
// called from many goroutines at once.
type Store struct {
	pool        *pgxpool.Pool
	ownsPool    bool // Close closes the pool as well
	options     Options
	configErr   error  // returned by every call if the arguments of New are invalid
	drawToken   string // an SQL expression
	lockTimeout time.Duration
	notices     notices.Registry
	sessions    []*session      // the first locks what is free; each other one waits for a key, or has got it so
	running     sync.WaitGroup  // watch and waits
	ctx         context.Context // ends at Close, with mu
	stop        context.CancelFunc

	mu       sync.Mutex
	owners   map[owned]*entry // all entries
	watching bool
}

var _ driver.Notifier = (*Store)(nil)

// New returns a store of advisory locks. The pool supplies the settings of connections. The locks
// live on connections of the Store's own, usually one, that are not counted in the pool. Nothing is
// dialed before the first call. The pool must stay open until the Store is closed. Options that
// cannot be used are reported by every call.
func New(pool *pgxpool.Pool, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{pool: pool, options: *opts, drawToken: "0", lockTimeout: lockTimeout, owners: map[owned]*entry{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if s.options.Keys == nil {
		s.options.Keys = SHA256Keys("")
	}
	if s.options.MaxWaiters == 0 {
		s.options.MaxWaiters = 8
	}
	for range max(s.options.MaxWaiters, 0) + 1 {
		sess := &session{store: s, keys: map[Key]*entry{}}
		sess.queue = batch.Queue[*call]{
			Send: sess.send, Name: func(*call) string { return "" }, // They are sent one after the other.
			InFlight: 1, Max: 1000, Bound: batchTimeout, MinInline: inlineTime,
		}
		s.sessions = append(s.sessions, sess)
	}
	if opts.TokenSequence != "" {
		s.drawToken = fmt.Sprintf("pg_catalog.nextval(%s::regclass)", pgclient.QuoteLiteral(s.sequence()))
	}
	switch {
	case pool == nil:
		s.configErr = fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	case opts.MaxWaiters < 0:
		s.configErr = fmt.Errorf("%w: MaxWaiters is negative", driver.ErrInvalid)
	case strings.Contains(opts.TokenSequence, "\x00"):
		s.configErr = fmt.Errorf("%w: the name of the sequence has a NUL in it", driver.ErrInvalid)
	}
	return s
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:    "postgres advisory",
		Fencing:  s.options.TokenSequence != "",
		Crash:    driver.FateFreed,
		Restart:  driver.FateForgotten, // Its holders are notified a moment later.
		Failover: driver.FateForgotten,
		Grain:    250 * time.Millisecond, // The process of the holder ends a hold.
	}
}

// Notify implements [driver.Notifier]. The notice of a lost hold comes when its connection ends,
// within a tenth of a second of pg_terminate_backend or a restart of the server.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Close implements [driver.Store]. It ends the sessions, and with them the locks. It closes the
// pool if the Store was opened from a URL.
func (s *Store) Close() error {
	s.mu.Lock()
	wasClosed := s.ctx.Err() != nil
	s.stop()
	s.mu.Unlock()
	if wasClosed {
		return nil
	}
	s.running.Wait()
	for _, sess := range s.sessions {
		sess.mu.Lock()
		sess.lose()
		sess.mu.Unlock()
	}
	if s.ownsPool {
		pgclient.ClosePool(s.pool)
	}
	return nil
}

// Options returns the options of the store.
func (s *Store) Options() Options { return s.options }

// WithConn calls f with a connection of the pool.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	return s.wrapErr(s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return f(conn.Conn()) }))
}

// checkUsable returns the error of a call that cannot be made.
func (s *Store) checkUsable(ctx context.Context) error {
	return pgclient.PreconditionErr(ctx, s.ctx.Err() != nil, s.configErr)
}
