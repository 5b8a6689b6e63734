package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// connectTimeout bounds the time to make a connection ready.
const connectTimeout = 10 * time.Second

// terminateTimeout bounds the time for ending orphans.
const terminateTimeout = time.Second

// An orphan is a session that has lost its connection while the server may not have noticed. It may
// hold locks that the store no longer records.
type orphan struct {
	pid     uint32
	started string
}

// lockStatements returns the statements that a session prepares. An attempt returns a token, or
// NULL if the key is locked elsewhere: the token is drawn after the lock. An exclusive attempt of a
// waiter also returns tokenBehindShared. A shared attempt passes the gate first: it locks that and
// unlocks it at once, so that others do not find it locked for long. Its token is drawn by a
// statement of its own: if that fails, the key is certainly locked.
func lockStatements(sequence string) map[string]string {
	token := "0::bigint"
	if sequence != "" {
		token = fmt.Sprintf("pg_catalog.nextval(%s::regclass)", pgclient.QuoteLiteral(sequence))
	}
	try := "SELECT CASE WHEN pg_catalog.pg_try_advisory_lock(%[1]s) THEN " + token
	tryWaiting := try + fmt.Sprintf(" WHEN pg_catalog.pg_try_advisory_lock_shared(%%[1]s)"+
		" THEN CASE WHEN pg_catalog.pg_advisory_unlock_shared(%%[1]s) THEN (%d)::bigint END END", tokenBehindShared)
	const tryShared = "SELECT CASE WHEN pg_catalog.pg_try_advisory_lock_shared(%[2]s)" +
		" THEN CASE WHEN pg_catalog.pg_advisory_unlock_shared(%[2]s)" +
		" THEN CASE WHEN pg_catalog.pg_try_advisory_lock_shared(%[1]s) THEN 0::bigint END END END"
	const key, pair = "$1::bigint", "$1::int, $2::int"
	const afterKey, afterPair = "$2::int, $3::int", "$3::int, $4::int"
	statements := map[string]string{
		"holdfast_try":                fmt.Sprintf(try+" END", key),
		"holdfast_try_pair":           fmt.Sprintf(try+" END", pair),
		"holdfast_try_waiting":        fmt.Sprintf(tryWaiting, key),
		"holdfast_try_waiting_pair":   fmt.Sprintf(tryWaiting, pair),
		"holdfast_try_shared":         fmt.Sprintf(tryShared, key, afterKey),
		"holdfast_try_shared_pair":    fmt.Sprintf(tryShared, pair, afterPair),
		"holdfast_unlock":             fmt.Sprintf(unlockStatement, "", key, afterKey),
		"holdfast_unlock_pair":        fmt.Sprintf(unlockStatement, "", pair, afterPair),
		"holdfast_unlock_shared":      fmt.Sprintf(unlockStatement, "_shared", key, afterKey),
		"holdfast_unlock_shared_pair": fmt.Sprintf(unlockStatement, "_shared", pair, afterPair),
		"holdfast_ping":               pgclient.PingStatement,
	}
	if sequence != "" {
		statements["holdfast_raise_token"] = fmt.Sprintf(raiseTokenStatement,
			pgclient.QuoteLiteral(sequence), sequenceLockKey, minSequenceStep)
	}
	return statements
}

// unlockStatement unlocks a key, and then checks for the mark of waiters. It returns NULL if the
// key was not locked, and false if there is a mark. The check locks the mark's key until the end of
// its transaction: another session that releases the key meanwhile notifies in vain. CASE keeps the
// order.
const unlockStatement = "SELECT CASE WHEN pg_catalog.pg_advisory_unlock%s(%s) THEN pg_catalog.pg_try_advisory_xact_lock(%s) END"

// idleTimeoutStatement sets the timeouts after which the server ends a session. The silence of the
// session must count first: TCP must not detect a failure sooner. A version without
// idle_session_timeout has TCP alone.
const (
	idleTimeoutStatement    = "SELECT pg_backend_pid(), set_config('idle_session_timeout', $1, false)" + tcpTimeouts
	idleTimeoutStatementOld = "SELECT pg_catalog.pg_backend_pid()" + tcpTimeouts
	tcpTimeouts             = ", set_config('tcp_user_timeout', $1, false), set_config('tcp_keepalives_idle', $2, false)"
)

// A serverInfo describes the server and the session.
type serverInfo struct {
	pid      uint32
	started  string
	version  int
	standby  bool
	capacity int
	clock    int64
}

// openSession opens a session with an idle timeout and prepared statements. It calls finish last,
// with what it has read about the server.
func (s *engine) openSession(ctx context.Context, idleTimeout time.Duration,
	statements map[string]string, finish func(context.Context, *pgx.Conn, serverInfo) error) (*session, error) {
	conn, err := s.dialConn(ctx)
	if err != nil {
		return nil, s.wrapErr(err)
	}
	sess, err := s.prepareSession(ctx, conn, idleTimeout, statements, finish)
	if err != nil {
		_ = conn.Close(ctx) // Nothing can be lost with it.
		return nil, s.wrapErr(err)
	}
	return sess, nil
}

// openLockSession opens a session for locks.
func (s *engine) openLockSession(idleTimeout time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	finish := func(ctx context.Context, conn *pgx.Conn, info serverInfo) error {
		s.mu.Lock()
		s.capacity = info.capacity
		s.mu.Unlock()
		if s.options.TokenSequence == "" {
			return nil
		}
		return s.advanceSequence(ctx, conn, info.clock)
	}
	sess, err := s.openSession(ctx, idleTimeout, s.statements, finish)
	if sess != nil {
		sess.onEnded = func(cause error) func() { return s.onSessionEnded(sess, cause) }
	}
	return sess, err
}

// dialConn makes a connection as the pool would.
func (s *engine) dialConn(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgclient.ConnConfig(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	if name := config.RuntimeParams["application_name"]; name == "" || name == "holdfast" {
		config.RuntimeParams["application_name"] = applicationName()
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	afterConnect := s.pool.Config().AfterConnect
	if err != nil || afterConnect == nil {
		return conn, err
	}
	if err := afterConnect(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (s *engine) WithConn(ctx context.Context, f func(*pgx.Conn) error) error {
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

// applicationName identifies the program that has the locks in the server's monitoring.
func applicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("holdfast %.30s/%d", host, os.Getpid())
}

// prepareSession makes a session of a connection.
func (s *engine) prepareSession(ctx context.Context, conn *pgx.Conn, idleTimeout time.Duration,
	statements map[string]string, finish func(context.Context, *pgx.Conn, serverInfo) error) (*session, error) {
	info, err := probeServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.verifyDirect(conn, info); err != nil {
		return nil, err
	}
	if err := s.terminateOrphans(ctx, conn); err != nil {
		return nil, err
	}
	if err := prepareStatements(ctx, conn, info, statements); err != nil {
		return nil, err
	}
	if err := finish(ctx, conn, info); err != nil {
		return nil, err
	}
	params := idleTimeoutParams(idleTimeout)
	if err := conn.PgConn().ExecPrepared(ctx, "holdfast_idle_timeout", params, nil, nil).Read().Err; err != nil {
		return nil, err
	}
	raw, err := conn.PgConn().Hijack()
	if err != nil {
		return nil, err
	}
	return &session{
		conn: raw.Conn, frontend: raw.Frontend, pid: info.pid, started: info.started,
		idleTimeout: idleTimeout, targetTimeout: idleTimeout,
	}, nil
}

func probeServer(ctx context.Context, conn *pgx.Conn) (serverInfo, error) {
	const query = `SELECT pg_catalog.pg_backend_pid(),
		coalesce((SELECT backend_start::text FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()), ''::text),
		pg_catalog.current_setting('server_version_num'::text)::int, pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('max_locks_per_transaction'::text)::int *
			(pg_catalog.current_setting('max_connections'::text)::int + pg_catalog.current_setting('max_prepared_transactions'::text)::int),
		`
	var w serverInfo
	clock := pgclient.Microseconds("pg_catalog.clock_timestamp()")
	err := conn.QueryRow(ctx, query+clock, pgx.QueryExecModeSimpleProtocol).
		Scan(&w.pid, &w.started, &w.version, &w.standby, &w.capacity, &w.clock)
	return w, err
}

var errStandby = fmt.Errorf("%w: this server is a standby, whose locks exclude nobody on the primary: connect to that "+
	"(target_session_attrs=read-write)", driver.ErrNotApplied)

// verifyDirect refuses a connection on which locks would not exclude all others. A pooler gives its
// clients process numbers of its own.
func (s *engine) verifyDirect(conn *pgx.Conn, info serverInfo) error {
	if info.standby {
		return errStandby
	}
	if info.pid != conn.PgConn().PID() && !s.options.SessionPooled {
		return fmt.Errorf("%w: there is a pooler in the path, and with one that pools transactions two clients may hold one lock: "+
			"connect to the server itself, or say SessionPooled if it pools sessions, or use the lease table (postgres://)", driver.ErrUnsupported)
	}
	return nil
}

// terminateOrphans ends sessions of this store that may have outlived their connections, so that a
// client is not locked out by its own session. An orphan that cannot be ended in time is left for
// the next connection.
func (s *engine) terminateOrphans(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	orphans := s.orphans
	s.orphans = nil
	s.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	for i, o := range orphans {
		ended, err := o.terminate(ctx, limited, conn)
		if err != nil || !ended {
			s.mu.Lock()
			s.orphans = append(s.orphans, orphans[i:]...)
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

// terminate reports whether the session has ended. If the user may not end it, it is a session of
// another user, and the orphan has ended.
func (o orphan) terminate(ctx, limited context.Context, conn *pgx.Conn) (ended bool, err error) {
	const query = `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
		WHERE pid = $1::int AND backend_start::text = $2::text`
	for try := 0; ; try++ {
		var signaled bool
		err := conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol, int32(o.pid), o.started).Scan(&signaled)
		switch {
		case errors.Is(err, pgx.ErrNoRows), pgclient.SQLState(err) == "42501":
			return true, nil
		case err != nil:
			return false, err
		case !pgclient.PauseBeforeRetry(limited, try):
			return false, nil
		}
	}
}

// prepareStatements prepares the statements, in one round trip.
func prepareStatements(ctx context.Context, conn *pgx.Conn, info serverInfo, statements map[string]string) error {
	const neutral = "SET statement_timeout = 0; SET lock_timeout = '2s'"
	if _, err := conn.PgConn().Exec(ctx, neutral).ReadAll(); err != nil {
		return err
	}
	timeout := idleTimeoutStatement
	if info.version < 140000 {
		timeout = idleTimeoutStatementOld
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	for name, text := range statements {
		pipeline.SendPrepare(name, text, nil)
	}
	pipeline.SendPrepare("holdfast_idle_timeout", timeout, nil)
	if err := pipeline.Sync(); err != nil {
		return errors.Join(err, pipeline.Close())
	}
	var failed error
	for range len(statements) + 1 {
		if _, err := pipeline.GetResults(); err != nil {
			failed = err
			break
		}
	}
	return cmp.Or(failed, pipeline.Close())
}
