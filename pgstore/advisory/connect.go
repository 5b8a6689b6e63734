package advisory

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// States of the server's errors.
const (
	lockTableFull    = "53200"
	lockNotAvailable = "55P03"
)

// idleMargin is by how much idle_session_timeout exceeds the longest TTL. The server takes little
// more than maxIdle.
const (
	idleMargin = time.Second
	maxIdle    = 24 * 24 * time.Hour
)

var errStandby = fmt.Errorf("%w: this server is a standby, whose locks exclude nobody on the primary: connect to that "+
	"(target_session_attrs=read-write)", driver.ErrNotApplied)

// setUp prepares the statements that lock and unlock a key of %[1]d integers. Each returns the
// process that replies, and a value, null if the function returns false. pg_advisory_lock returns
// void.
const setUp = `PREPARE holdfast_try%[1]d (%[2]s) AS SELECT CASE WHEN pg_catalog.pg_try_advisory_lock(%[3]s) THEN %[4]s END, pg_catalog.pg_backend_pid();
	PREPARE holdfast_wait%[1]d (%[2]s) AS SELECT CASE WHEN pg_catalog.pg_advisory_lock(%[3]s) IS NOT NULL THEN %[4]s END, pg_catalog.pg_backend_pid();
	PREPARE holdfast_unlock%[1]d (%[2]s) AS SELECT CASE WHEN pg_catalog.pg_advisory_unlock(%[3]s) THEN 0 END, pg_catalog.pg_backend_pid();`

// ready sees to it that there is a connection, and bounds what is sent next. It has the server end
// the session when it has heard nothing for a TTL, so that a process that hangs does not keep its
// locks. TCP has the same, for a network that is cut. No other timeout of the user ends a statement
// that waits.
func (s *session) ready(ttl time.Duration) error {
	deadline := time.Now().Add(batchTimeout)
	if time.Since(s.used) > time.Second { // Looking takes a millisecond.
		s.look()
	}
	if s.conn == nil {
		if err := s.connect(deadline); err != nil {
			return err
		}
	}
	s.bound(deadline)
	idle := min(ttl+idleMargin, maxIdle)
	if idle <= s.idle {
		return nil
	}
	ms := (idle + time.Millisecond - 1).Milliseconds()
	const text = `SELECT pg_catalog.set_config(name, CASE name WHEN 'idle_session_timeout' THEN '%[1]d' WHEN 'tcp_user_timeout' THEN '%[1]d'
		WHEN 'tcp_keepalives_idle' THEN '%[2]d' WHEN 'lock_timeout' THEN '%[3]d' ELSE '0' END, false) FROM pg_catalog.pg_settings WHERE name IN
		('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'lock_timeout', 'statement_timeout', 'transaction_timeout')`
	seconds := min((ms+999)/1000, 32767) // the most that Linux accepts
	_, err := s.conn.PgConn().Exec(context.Background(), fmt.Sprintf(text, ms, seconds, s.store.lockTimeout.Milliseconds())).ReadAll()
	if err == nil {
		s.idle = idle
	}
	return err
}

// connect makes the connection of a session as the pool would, and refuses one on which locks would
// not exclude all others. A pooler gives its clients process numbers of its own. When the context
// of a statement ends, the server is asked to cancel it, and the connection remains. The error says
// that nothing was applied.
func (s *session) connect(deadline time.Time) error {
	st := s.store
	ctx, cancel := context.WithDeadline(st.ctx, deadline)
	defer cancel()
	conn, err := pgclient.Dial(ctx, st.pool, func(config *pgx.ConnConfig) {
		if name := config.RuntimeParams["application_name"]; name == "" || name == "holdfast" {
			host, _ := os.Hostname() // It is for people.
			config.RuntimeParams["application_name"] = fmt.Sprintf("holdfast %.30s/%d", host, os.Getpid())
		}
		config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
		}
	})
	if err != nil {
		return driver.NotApplied(st.wrapErr(err))
	}
	var standby bool
	err = conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()::text, pg_catalog.pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&s.pid, &standby)
	switch {
	case err != nil:
	case standby:
		err = errStandby
	case s.pid != fmt.Sprint(conn.PgConn().PID()):
		err = fmt.Errorf("%w: there is a pooler in the path, and with one that pools transactions two clients may hold one lock: "+
			"connect to the server itself, or use the lease table (postgres://)", driver.ErrUnsupported)
	default:
		if err = st.raiseToken(ctx, conn); err == nil {
			_, err = conn.Exec(ctx, "PREPARE holdfast_ping AS SELECT 0, pg_catalog.pg_backend_pid();"+
				fmt.Sprintf(setUp, 1, "bigint", "$1", st.drawToken)+fmt.Sprintf(setUp, 2, "int, int", "$1, $2", st.drawToken), pgx.QueryExecModeSimpleProtocol)
		}
	}
	if err != nil {
		disconnect(conn) // Nothing can be lost with it.
		return driver.NotApplied(st.wrapErr(err))
	}
	s.conn, s.idle = conn, 0 // Its settings are still to be made.
	return nil
}

// disconnect closes a connection, at the server too if another process has a duplicate.
func disconnect(conn *pgx.Conn) {
	raw := transport(conn)
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // The other end may have closed it.
	}
	_ = raw.Close() // as above
}

// transport returns the connection below TLS.
func transport(conn *pgx.Conn) net.Conn {
	raw := conn.PgConn().Conn()
	if over, ok := raw.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return raw
}

// Connections returns duplicates of the descriptors of the connections of sessions that hold locks
// now. The caller closes them, and must neither read nor write them.
//
// It is for programs that hand their locks to a child. The server ends a session, and with it the
// locks, when no process has its connection open any more. A process that was given a duplicate
// beforehand keeps the locks in force if this one is killed, until it closes the duplicate, or
// until the server's idle_session_timeout (PostgreSQL 14 and later). A duplicate does not keep a
// connection that the server or the network ends. On Windows Connections returns an error.
func (s *Store) Connections() (files []*os.File, err error) {
	for _, sess := range s.sessions {
		holds := false
		s.mu.Lock()
		for _, e := range sess.keys {
			holds = holds || e.state == held // else a wait may have it locked
		}
		s.mu.Unlock()
		if !holds {
			continue
		}
		sess.mu.Lock()
		defer sess.mu.Unlock()
		if sess.conn == nil {
			continue
		}
		filer, ok := transport(sess.conn).(interface{ File() (*os.File, error) })
		if !ok {
			return nil, fmt.Errorf("a %T has no descriptor", transport(sess.conn))
		}
		f, err := filer.File()
		if err != nil {
			return nil, fmt.Errorf("duplicate a connection: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

// advices says what an error of the server means, and what to do.
var advices = map[string]string{
	"42P01":       "the sequence of tokens is not there: Store.Migrate creates it",
	"42501":       "the user needs USAGE, SELECT and UPDATE on the sequence of tokens, or may not do what was asked",
	lockTableFull: "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction",
	"53300":       "the server has no connection left: advisory locks need one of their own for each process, and one for each waiter",
	"2200H":       "no token above the last one is left",
	"57P03":       "the server is starting or stopping",
}

// wrapErr gives an error of the server the advice that it needs, and says whether anything was
// applied.
func (s *Store) wrapErr(err error) error {
	state := pgclient.SQLState(err)
	if err = pgclient.InOneLine(err); advices[state] != "" {
		err = fmt.Errorf("%w: %s", err, advices[state])
	}
	switch {
	case pgclient.IsServerNotReady(state):
		return &driver.RetryError{Err: err}
	case state != "":
		return driver.NotApplied(err)
	}
	return err
}
