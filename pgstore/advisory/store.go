package advisory

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
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
	// Keys make the keys of locks from their names. All programs that are to exclude each other
	// need the same.
	Keys Keys

	// TokenSequence names the sequence that fencing tokens are drawn from, as in "app.tokens".
	// [Store.Migrate] creates it. All programs that lock the same names need the same. A name
	// without a schema is searched for in the search_path: name a schema in which nobody else
	// may create. "" means no tokens. One grant in 32 waits for the server's disk.
	TokenSequence string

	// MaxWaiters bounds the sessions beside the first, of owners that wait or have waited for their
	// locks. 0 means 8, and below 0 there are none.
	MaxWaiters int
}

// A Store keeps locks as advisory locks of PostgreSQL sessions. See [New]. Its methods may be
// called from many goroutines at once.
type Store struct {
	pool     *pgxpool.Pool
	ownsPool bool // Close closes the pool as well
	options  Options
	notices  notices.Registry
	sessions []*session      // the first has the keys that were free; each other one waits for a key, or has waited
	running  sync.WaitGroup  // the goroutines
	ctx      context.Context // ends at Close, under mu
	stop     context.CancelFunc

	mu       sync.Mutex
	owners   map[owned]*entry // all entries
	watching bool             // watch runs
}

var _ driver.Notifier = (*Store)(nil)

// New returns a store of advisory locks, on connections of its own, usually one, made as those of
// the pool, which must stay open until the Store is closed. Nothing is dialed yet.
func New(pool *pgxpool.Pool, opts *Options) *Store {
	s := &Store{pool: pool, owners: map[owned]*entry{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if opts != nil {
		s.options = *opts
	}
	for range max(cmp.Or(s.options.MaxWaiters, 8), 0) + 1 {
		sess := &session{store: s, keys: map[string]*entry{}}
		sess.queue = batch.Queue[*call]{
			Send:     func(_ context.Context, calls []*call) { sess.send(context.Background(), calls) }, // It goes on without its caller.
			Name:     func(*call) string { return "" },                                                  // They are sent one after the other.
			InFlight: 1, Max: 1000, Bound: batchTimeout, MinInline: inlineTime,
		}
		s.sessions = append(s.sessions, sess)
	}
	return s
}

func init() { driver.Register("postgres+advisory", openURL) }

// openURL makes a store with a pool of its own. Nothing is dialed.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	own, rest, err := pgclient.SplitURL(u, "keys", "namespace", "tokens", "max_waiters")
	if err != nil {
		return nil, err
	}
	query := driver.NewQuery(own)
	kind := query.String("keys", "sha256")
	keys := Keys{Namespace: query.String("namespace", ""), Raw: kind == "raw"}
	opts := &Options{Keys: keys, TokenSequence: query.String("tokens", ""), MaxWaiters: query.Int("max_waiters", 0)}
	switch {
	case query.Err() != nil:
		return nil, query.Err()
	case kind != "sha256" && !keys.Raw:
		return nil, fmt.Errorf("%w: parameter keys is neither sha256 nor raw", driver.ErrInvalid)
	}
	if _, err := keys.of("1"); err != nil {
		return nil, err
	}
	rest.Scheme = "postgres"
	pool, err := pgclient.OpenPool(rest)
	if err != nil {
		return nil, err
	}
	s := New(pool, opts)
	s.ownsPool = true
	return s, nil
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

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Close implements [driver.Store]. It ends the sessions, and with them the locks. It closes the
// pool if the Store was opened from a URL.
func (s *Store) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
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

// WithConn calls f with a connection of the pool.
func (s *Store) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	return wrapErr(s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return f(conn.Conn()) }))
}

// checkUsable returns the error of a call that cannot be made.
func (s *Store) checkUsable(ctx context.Context) (err error) {
	if s.pool == nil {
		err = fmt.Errorf("%w: the pool is nil", driver.ErrInvalid)
	}
	return pgclient.PreconditionErr(ctx, s.ctx.Err() != nil, err)
}

// sequenceLockKey is the key of the lock of a transaction that makes or sets a sequence.
const sequenceLockKey = -7386017462359302110

// raiseText draws a token. If the sequence is behind the server's clock, it sets the sequence to a
// second ahead of it: a token is granted twice only if others draw a million meanwhile. Every
// session does so before it grants anything. So tokens rise over the loss of the sequence, and over
// a failover of more than a second to a server that lacks its latest values.
const raiseText = `WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(%[2]d)),
	drawn AS MATERIALIZED (SELECT nextval(%[1]s::regclass) AS last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock FROM turn)
	SELECT CASE WHEN last < clock THEN setval(%[1]s::regclass, clock + 1000001) END FROM drawn;`

// tokens returns the quoted name of the sequence, an expression that draws a token, and a statement
// that raises the sequence.
func (s *Store) tokens() (sequence, draw, raise string) {
	if s.options.TokenSequence == "" {
		return "", zeroIfWritable, ""
	}
	sequence = pgx.Identifier(strings.Split(s.options.TokenSequence, ".")).Sanitize()
	literal := pgclient.QuoteLiteral(sequence)
	return sequence, fmt.Sprintf("nextval(%s::regclass)", literal), fmt.Sprintf(raiseText, literal, sequenceLockKey)
}

// Migrate creates the sequence of Options.TokenSequence if it does not exist, and has one that
// exists rise, without a cache. The user must be its owner; users that lock need UPDATE on it. Many
// programs may call Migrate at once. Without a TokenSequence it does nothing.
func (s *Store) Migrate(ctx context.Context) error {
	sequence, _, raise := s.tokens()
	if err := s.checkUsable(ctx); err != nil || sequence == "" {
		return err
	}
	const text = "SELECT pg_catalog.pg_advisory_xact_lock('%d'::bigint); CREATE SEQUENCE IF NOT EXISTS %[2]s; ALTER SEQUENCE %[2]s AS bigint INCREMENT 1 MAXVALUE %d CACHE 1 NO CYCLE;"
	all := fmt.Sprintf(text, sequenceLockKey, sequence, int64(driver.MaxToken)) + fmt.Sprintf(ownPath, true) + raise
	_, err := s.pool.Exec(ctx, all, pgx.QueryExecModeSimpleProtocol)
	return wrapErr(err)
}

const (
	lockNotAvailable = "55P03" // the error of a statement that has waited for lockTimeout or shortPause
	canceled         = "57014" // the error of a statement that somebody has canceled

	noWrites = "this server takes no writes, as a standby, or one that was replaced: connect to the primary (target_session_attrs=read-write)"
)

// advices says what an error of the server means, and what to do.
var advices = map[string]string{
	"22012":          noWrites, // of zeroIfWritable
	"25006":          noWrites, // of the sequence
	"42P01":          "the sequence of tokens is not there: \"holdfast migrate --store URL\", or Store.Migrate, creates it",
	"42501":          "the user needs UPDATE on the sequence of tokens, or may not do what was asked",
	"53200":          "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction",
	"53300":          "the server has no connection left: advisory locks need one of their own for each process, and one for each waiter",
	lockNotAvailable: "others have the lock, or have locked the sequence of tokens",
	"55000":          "this server is a standby, whose locks exclude nobody on the primary: connect to that (target_session_attrs=read-write)",
}

// advise adds to an error of the server what to do about it.
func advise(err error) error {
	if advice := advices[pgclient.SQLState(err)]; advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// wrapErr advises, and marks an error of the server as not applied.
func wrapErr(err error) error {
	switch state := pgclient.SQLState(err); {
	case pgclient.IsServerNotReady(state), state == lockNotAvailable:
		return &driver.RetryError{Err: advise(err)}
	case state != "":
		return driver.NotApplied(advise(err))
	}
	return err
}
