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
	"github.com/holdfast-go/holdfast/internal/notices"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Options change how a store of advisory locks works. The zero value and nil are the defaults.
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

	// MaxLocks bounds the locks that the Store holds and waits for at a time. Advisory locks live in
	// a table of fixed size that all sessions of the server share: when it is full, the statements of
	// other programs fail as well. 0 means half of the table, as the server's settings give its size.
	MaxLocks int

	// MaxWaiters bounds the sessions that wait in the server, one for each owner that waits. Further
	// owners try at intervals. 0 means 8.
	MaxWaiters int
}

// A Store keeps locks as advisory locks of PostgreSQL sessions. See [New]. Its methods may be called
// from many goroutines at once.
type Store struct {
	pool      *pgxpool.Pool
	ownsPool  bool // Close closes the pool as well
	options   Options
	configErr error  // returned by every call if the arguments of New are invalid
	drawToken string // an SQL expression
	batch     string // batchStatement, with that
	notices   notices.Registry
	running   sync.WaitGroup // goroutines of sessions, waits and orphans
	stop      context.CancelFunc
	ctx       context.Context // ends at Close

	mu       sync.Mutex
	closed   bool
	entries  map[Key]*entry           // what the main session holds, or is about to: one for each key
	waited   map[Key]*entry           // holds of sessions that have waited
	owners   map[owned]*entry         // all entries
	main     *session                 // for what is free; nil if there is none
	dial     *dial                    // of main, under way
	sessions map[*session]bool        // all that run
	spare    []*session               // that have waited once, and hold nothing now
	waiters  int                      // sessions that wait, that hold what they waited for, or are spare
	orphans  map[orphan]chan struct{} // closed when the server process is no more
	capacity int                      // of the server's lock table; 0 before it is known
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
	s := &Store{
		pool: pool, options: *opts, drawToken: "0::bigint",
		entries: map[Key]*entry{}, waited: map[Key]*entry{}, owners: map[owned]*entry{},
		sessions: map[*session]bool{}, orphans: map[orphan]chan struct{}{},
	}
	if s.options.Keys == nil {
		s.options.Keys = SHA256Keys("")
	}
	if s.options.MaxWaiters == 0 {
		s.options.MaxWaiters = 8
	}
	if opts.TokenSequence != "" {
		s.drawToken = fmt.Sprintf("pg_catalog.nextval(%s::regclass)", pgclient.QuoteLiteral(s.sequence()))
	}
	s.batch = fmt.Sprintf(batchStatement, s.drawToken)
	switch {
	case pool == nil:
		s.configErr = fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	case opts.MaxLocks < 0 || opts.MaxWaiters < 0:
		s.configErr = fmt.Errorf("%w: MaxLocks or MaxWaiters is negative", driver.ErrInvalid)
	case strings.Contains(opts.TokenSequence, "\x00"):
		s.configErr = fmt.Errorf("%w: the name of the sequence has a NUL in it", driver.ErrInvalid)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
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
		Grain:    100 * time.Millisecond, // A timer of the holder's process ends a hold.
	}
}

// Notify implements [driver.Notifier]. The notice of a lost hold comes when its connection ends,
// that is within milliseconds of pg_terminate_backend or a restart of the server.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Close implements [driver.Store]. It ends the sessions, and with them the locks. It closes the pool
// if the Store was opened from a URL.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	var places []*entry
	for _, e := range s.owners {
		e.stopTimer()
		if e.state == waiting {
			places = append(places, e)
		}
	}
	for sess := range s.sessions {
		sess.close()
	}
	s.mu.Unlock()
	s.stop()
	for _, e := range places {
		s.running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = s.end(ctx, e) // A server that is silent ends the wait by lock_timeout.
		})
	}
	s.running.Wait()
	if s.ownsPool {
		pgclient.ClosePool(s.pool)
	}
	return nil
}

// Options returns the options of the store.
func (s *Store) Options() Options { return s.options }

// ServerVersion returns the name and version of the server, as in "PostgreSQL 15.18".
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	var number string
	if err := s.pool.QueryRow(ctx, pgclient.VersionQuery).Scan(&number); err != nil {
		return "", fmt.Errorf("read the version of the server: %w", err)
	}
	return "PostgreSQL " + number, nil
}

// WithConn calls f with a connection that is made as those for locks are, and closed then.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	conn, err := s.dialConn(ctx)
	if err != nil {
		return s.wrapErr(err)
	}
	defer conn.Close(ctx)
	return f(conn)
}

// checkUsable returns the error of a call that cannot be made.
func (s *Store) checkUsable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return pgclient.PreconditionErr(ctx, closed, s.configErr)
}

// onSessionEnded drops what a session held, and tells the owners.
func (s *Store) onSessionEnded(sess *session) {
	s.mu.Lock()
	delete(s.sessions, sess)
	sess.onEnd()
	if s.main == sess {
		s.main = nil
	}
	for i, other := range s.spare {
		if other == sess {
			s.spare = append(s.spare[:i:i], s.spare[i+1:]...)
			break
		}
	}
	var lost []*entry
	for _, e := range s.owners {
		if e.session == sess && e.state != waiting { // A wait reports its own end.
			lost = append(lost, e)
		}
	}
	if len(lost) > 0 && !s.closed {
		s.addOrphan(orphan{sess.pid, sess.started})
	}
	closed := s.closed
	for _, e := range lost {
		s.forget(e)
	}
	s.mu.Unlock()
	for _, e := range lost {
		if !closed {
			s.notices.Send(e.name, e.owner, 0)
		}
	}
}

// An orphan is a session that has lost its connection while the server may not have noticed. It may
// hold locks that the store no longer records.
type orphan struct {
	pid     uint32
	started string
}

// addOrphan ends the server process of a session that was lost, so that a client is not locked out
// by its own session. The caller holds s.mu.
func (s *Store) addOrphan(o orphan) {
	gone := make(chan struct{})
	s.orphans[o] = gone
	s.running.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.orphans, o)
			close(gone)
		}()
		const query = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
			WHERE pid = $1::int AND backend_start::text = $2::text`
		for try := 0; try < 100; try++ {
			ctx, cancel := context.WithTimeout(s.ctx, statementTimeout)
			var signaled bool
			err := s.pool.QueryRow(ctx, query, pgx.QueryExecModeExec, int32(o.pid), o.started).Scan(&signaled)
			cancel()
			// Without the right to end it, it is a process of another user: the orphan has ended.
			if err == pgx.ErrNoRows || sqlState(err) == "42501" || !pgclient.PauseBeforeRetry(s.ctx, try) {
				return
			}
		}
	})
}
