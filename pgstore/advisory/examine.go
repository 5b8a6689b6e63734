package advisory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

var _ driver.Examiner = (*Store)(nil)

// examineQuery counts the advisory locks of the server, and describes the sequence: whether it is
// there, and whether the user may draw from it and set it; and reads idle_session_timeout, in ms,
// as connections have it at first, which is NULL before PostgreSQL 14; max_locks_per_transaction,
// and the user.
const examineQuery = `SELECT
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory'::text),
	pg_catalog.to_regclass(nullif($1::text, ''::text)) IS NOT NULL,
	coalesce(pg_catalog.has_sequence_privilege(pg_catalog.to_regclass(nullif($1::text, ''::text))::oid, 'UPDATE'::text), false),
	pg_catalog.current_setting('server_version'::text),
	(SELECT s.setting::bigint FROM pg_catalog.pg_settings AS s WHERE s.name = 'idle_session_timeout'::text),
	pg_catalog.current_setting('max_locks_per_transaction'::text)::int, current_user::text`

// Examine implements [driver.Examiner]. It makes a connection as those for locks.
func (s *Store) Examine(ctx context.Context, _ driver.Examination) ([]driver.Finding, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	conn, err := s.dialConn(ctx)
	if err != nil {
		return nil, s.wrapErr(err)
	}
	defer conn.Close(ctx)
	info, err := probeServer(ctx, conn)
	if err != nil {
		return nil, s.wrapErr(err)
	}
	var locks, perTransaction int
	var exists, mayDraw bool
	var version, user string
	var idle *int64
	sequence := sequenceName(s.options.TokenSequence)
	if err := conn.QueryRow(ctx, examineQuery, pgx.QueryExecModeSimpleProtocol, sequence).Scan(&locks, &exists, &mayDraw, &version, &idle, &perTransaction, &user); err != nil {
		return nil, s.wrapErr(err)
	}

	user = pgx.Identifier{user}.Sanitize()
	primary := driver.Finding{Check: "advisory.primary", Severity: driver.SeverityOK, Found: "the server is no standby"}
	if info.standby {
		primary.Severity, primary.Found = driver.SeverityFailure, "this server is a standby, whose locks exclude nobody on the primary"
		primary.Want, primary.Remedy = "the primary", "target_session_attrs=read-write in the URL, with all hosts"
	}
	pooler := driver.Finding{Check: "advisory.pooler", Severity: driver.SeverityOK, Found: "the connection is to the server itself"}
	if info.pid != conn.PgConn().PID() {
		pooler.Severity, pooler.Found = driver.SeverityFailure, "a pooler is in the path: one that pools transactions would grant a lock twice, and the store refuses it"
		pooler.Want, pooler.Remedy = "connections to the server itself", "its address in the URL; or session_pooled=true (SessionPooled), if the pooler pools sessions; or the table (postgres://)"
		if s.options.SessionPooled {
			pooler.Severity = driver.SeverityNote
			pooler.Found = "a pooler is in the path, and only SessionPooled says that it gives each connection a server process of its own"
			pooler.Remedy = "pool_mode = session in the settings of PgBouncer for these users"
		}
	}
	tokens := driver.Finding{Check: "advisory.tokens", Severity: driver.SeverityOK, Found: "tokens come from the sequence " + sequence}
	switch {
	case sequence == "":
		tokens.Severity, tokens.Found = driver.SeverityNote, "locks have no fencing tokens"
		tokens.Want, tokens.Remedy = "a sequence, if a resource is to refuse holders that are late", "tokens=NAME in the URL (TokenSequence), and holdfast migrate"
	case !exists:
		tokens.Severity, tokens.Found = driver.SeverityFailure, fmt.Sprintf("the sequence %s is not there", sequence)
		tokens.Want, tokens.Remedy = "the sequence of the tokens", "holdfast migrate --store URL"
	case !mayDraw:
		tokens.Severity, tokens.Found = driver.SeverityFailure, fmt.Sprintf("the user may not use the sequence %s", sequence)
		tokens.Want, tokens.Remedy = "the rights USAGE and UPDATE", fmt.Sprintf("GRANT USAGE, UPDATE ON SEQUENCE %s TO %s", sequence, user)
	}
	table := driver.Finding{Check: "advisory.lock-table", Severity: driver.SeverityOK,
		Found: fmt.Sprintf("%d advisory locks are held, and the lock table of the server has room for %d locks", locks, info.capacity)}
	if locks > info.capacity/2 {
		table.Severity, table.Want = driver.SeverityWarning, "half of it free: when it is full, statements of other programs fail, too"
		table.Remedy = fmt.Sprintf("ALTER SYSTEM SET max_locks_per_transaction = %d, and a restart", max(4*locks*perTransaction/max(info.capacity, 1), 2*perTransaction))
	}
	return []driver.Finding{
		pgclient.ExamineVersion("advisory.version", version), primary, pooler, tokens, table,
		examineIdleTimeout(idle, user), pgclient.ExamineTransport("advisory.tls", conn.PgConn()),
	}, nil
}

// leastIdle is the least idle_session_timeout of a new connection with which it is certainly ready,
// and one of the pool still there when it is used again.
const leastIdle = 2 * time.Second

// examineIdleTimeout checks idle_session_timeout, by which the server ends the session of a holder
// that hangs. Sessions with locks set their own.
func examineIdleTimeout(ms *int64, user string) driver.Finding {
	f := driver.Finding{Check: "advisory.idle-session-timeout", Severity: driver.SeverityOK}
	switch {
	case ms == nil:
		f.Severity, f.Found = driver.SeverityWarning, "the server has no idle_session_timeout: a holder that hangs keeps its locks until its connection ends"
		f.Want, f.Remedy = "PostgreSQL 14 or later", "upgrade it, or the table (postgres://)"
	case *ms > 0 && time.Duration(*ms)*time.Millisecond < leastIdle:
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("idle_session_timeout is %v: the server may end a connection while it is made ready, or is to be used", time.Duration(*ms)*time.Millisecond)
		f.Want, f.Remedy = fmt.Sprintf("0, or %v or more: sessions with locks set their own", leastIdle), "ALTER ROLE "+user+" RESET idle_session_timeout, or the same of the database or the server"
	case *ms > 0:
		f.Found = fmt.Sprintf("sessions with locks set idle_session_timeout; others have %v", time.Duration(*ms)*time.Millisecond)
	default:
		f.Found = "sessions with locks set idle_session_timeout"
	}
	return f
}

// Forget implements [driver.Examiner]. The server remembers nothing of a key that is not locked.
func (s *Store) Forget(ctx context.Context, _ string) error {
	return pgclient.PreconditionErr(ctx, false, s.configErr)
}
