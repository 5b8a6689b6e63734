package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// connectBound is how long it may take to make a connection ready.
const connectBound = 10 * time.Second

// maxGhosts bounds the ended sessions that are remembered, and ghostBound the time
// that is taken to end them.
const (
	maxGhosts  = 16
	ghostBound = time.Second
)

// A ghost is a session whose connection was lost, while the server may not have
// noticed: it may hold locks that nobody here believes in any more.
type ghost struct {
	pid     uint32
	started string
}

// advisoryStatements are what a session prepares. An attempt answers with a
// token, or with NULL if the key is taken: the token is drawn once it is not.
func advisoryStatements(sequence string) map[string]string {
	token := "0::bigint"
	if sequence != "" {
		token = fmt.Sprintf("nextval(%s::regclass)", quoteLiteral(sequence))
	}
	try := "SELECT CASE WHEN pg_try_advisory_lock(%s) THEN " + token + " END"
	statements := map[string]string{
		"holdfast_try":         fmt.Sprintf(try, "$1::bigint"),
		"holdfast_try_pair":    fmt.Sprintf(try, "$1::int, $2::int"),
		"holdfast_unlock":      fmt.Sprintf(unlockStatement, "$1::bigint", "$2::int, $3::int"),
		"holdfast_unlock_pair": fmt.Sprintf(unlockStatement, "$1::int, $2::int", "$3::int, $4::int"),
		"holdfast_ping":        pingStatement,
	}
	if sequence != "" {
		statements["holdfast_lift"] = fmt.Sprintf(liftStatement, quoteLiteral(sequence), turnKey, leap)
	}
	return statements
}

// unlockStatement unlocks a key, and then looks for the mark of those who wait:
// NULL if the key was not locked, false if there is a mark. The look lasts until
// the end of the statement. CASE keeps the order.
const unlockStatement = "SELECT CASE WHEN pg_advisory_unlock(%s) THEN pg_try_advisory_xact_lock(%s) END"

// pingStatement is one that shows who answers.
const pingStatement = "SELECT pg_backend_pid()"

// limitStatement sets what makes the server give up on a session. Its silence
// is the first to count: what TCP finds out must not come sooner. A version
// without idle_session_timeout has TCP alone.
const (
	limitStatement    = "SELECT pg_backend_pid(), set_config('idle_session_timeout', $1, false)" + tcpLimits
	limitStatementOld = "SELECT pg_backend_pid()" + tcpLimits
	tcpLimits         = ", set_config('tcp_user_timeout', $1, false), set_config('tcp_keepalives_idle', $2, false)"
)

// A welcome is what a server says about itself and the session.
type welcome struct {
	pid      uint32
	started  string
	version  int
	standby  bool
	capacity int
	clock    int64
}

// connect makes a session whose limit is set, and which prepares statements. The
// steps are taken at last, with what the server has said about itself.
func (s *AdvisoryStore) connect(ctx context.Context, limit time.Duration, statements map[string]string,
	last func(ctx context.Context, conn *pgx.Conn, hello welcome) error) (*session, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, s.fault(err)
	}
	on, err := s.prepare(ctx, conn, limit, statements, last)
	if err != nil {
		_ = conn.Close(ctx) // There is nothing to be lost with it.
		return nil, s.fault(err)
	}
	return on, nil
}

// connectLocks makes a session for locks.
func (s *AdvisoryStore) connectLocks(limit time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectBound)
	defer cancel()
	on, err := s.connect(ctx, limit, s.statements, func(ctx context.Context, conn *pgx.Conn, hello welcome) error {
		s.mu.Lock()
		s.capacity = hello.capacity
		s.mu.Unlock()
		if s.options.TokenSequence == "" {
			return nil
		}
		return s.advance(ctx, conn, hello.clock)
	})
	if on != nil {
		on.ended = func(cause error) func() { return s.sessionLost(on, cause) }
	}
	return on, err
}

// dial makes a connection as the pool would.
func (s *AdvisoryStore) dial(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	if name := config.ConnConfig.RuntimeParams["application_name"]; name == "" || name == "holdfast" {
		config.ConnConfig.RuntimeParams["application_name"] = applicationName()
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// applicationName says in the server's monitoring which program has the locks.
func applicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("holdfast %.30s/%d", host, os.Getpid())
}

// prepare makes a session of a connection.
func (s *AdvisoryStore) prepare(ctx context.Context, conn *pgx.Conn, limit time.Duration, statements map[string]string,
	last func(ctx context.Context, conn *pgx.Conn, hello welcome) error) (*session, error) {
	hello, err := greet(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.trust(conn, hello); err != nil {
		return nil, err
	}
	if err := s.endGhosts(ctx, conn); err != nil {
		return nil, err
	}
	if err := setUp(ctx, conn, hello, statements); err != nil {
		return nil, err
	}
	if err := last(ctx, conn, hello); err != nil {
		return nil, err
	}
	if err := conn.PgConn().ExecPrepared(ctx, "holdfast_limit", limitParams(limit), nil, nil).Read().Err; err != nil {
		return nil, err
	}
	raw, err := conn.PgConn().Hijack()
	if err != nil {
		return nil, err
	}
	return &session{
		conn: raw.Conn, front: raw.Frontend, pid: hello.pid, started: hello.started, limit: limit, target: limit,
	}, nil
}

func greet(ctx context.Context, conn *pgx.Conn) (welcome, error) {
	const ask = `SELECT pg_backend_pid(), coalesce((SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()), ''),
		current_setting('server_version_num')::int, pg_is_in_recovery(),
		current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int),
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	var w welcome
	err := conn.QueryRow(ctx, ask, pgx.QueryExecModeSimpleProtocol).Scan(&w.pid, &w.started, &w.version, &w.standby, &w.capacity, &w.clock)
	return w, err
}

// trust refuses a connection on which locks would not exclude everybody. A
// pooler gives its clients process numbers of its own.
func (s *AdvisoryStore) trust(conn *pgx.Conn, hello welcome) error {
	if hello.standby {
		return fmt.Errorf("%w: this server is a standby, whose locks exclude nobody on the primary: connect to that "+
			"(target_session_attrs=read-write)", driver.ErrNotApplied)
	}
	if hello.pid != conn.PgConn().PID() && !s.options.SessionPooled {
		return fmt.Errorf("%w: there is a pooler in the path, and with one that pools transactions two clients may hold one lock: "+
			"connect to the server itself, or say SessionPooled if it pools sessions, or use the lease table (postgres://)", driver.ErrUnsupported)
	}
	return nil
}

// endGhosts ends sessions of this store that may have outlived their connections,
// so that nobody is locked out by himself. One that cannot be ended in time is
// left for the next connection.
func (s *AdvisoryStore) endGhosts(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	ghosts := s.ghosts
	s.ghosts = nil
	s.mu.Unlock()
	patience, cancel := context.WithTimeout(ctx, ghostBound)
	defer cancel()
	for i, g := range ghosts {
		gone, err := g.end(ctx, patience, conn)
		if err != nil || !gone {
			s.mu.Lock()
			s.ghosts = append(s.ghosts, ghosts[i:]...)
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

// end reports whether the session has ended. A user who may not end it is not
// the one who had it.
func (g ghost) end(ctx, patience context.Context, conn *pgx.Conn) (gone bool, err error) {
	const ask = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2"
	for try := 0; ; try++ {
		var signalled bool
		err := conn.QueryRow(ctx, ask, pgx.QueryExecModeSimpleProtocol, int32(g.pid), g.started).Scan(&signalled)
		switch {
		case errors.Is(err, pgx.ErrNoRows), sqlState(err) == "42501":
			return true, nil
		case err != nil:
			return false, err
		case !pause(patience, try):
			return false, nil
		}
	}
}

// setUp prepares the statements.
func setUp(ctx context.Context, conn *pgx.Conn, hello welcome, statements map[string]string) error {
	const neutral = "SET statement_timeout = 0; SET lock_timeout = '2s'"
	if _, err := conn.PgConn().Exec(ctx, neutral).ReadAll(); err != nil {
		return err
	}
	for name, text := range statements {
		if _, err := conn.PgConn().Prepare(ctx, name, text, nil); err != nil {
			return err
		}
	}
	text := limitStatement
	if hello.version < 140000 {
		text = limitStatementOld
	}
	_, err := conn.PgConn().Prepare(ctx, "holdfast_limit", text, nil)
	return err
}
