package doctor

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// conn is the connection that a store in PostgreSQL gives to an examination.
type conn = *pgx.Conn

// checkConnection adds the check of TLS, and reports whether a pooler is in the path, which gives
// its clients process numbers of its own.
func (l *list) checkConnection(ctx context.Context, kind string, conn *pgx.Conn) (pooled bool, err error) {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return false, err
	}
	raw := conn.PgConn().Conn()
	_, encrypted := raw.(*tls.Conn)
	l.transport(kind+".tls", raw, encrypted, "sslmode=verify-full in the URL")
	return pid != conn.PgConn().PID(), nil
}

// examineTable examines the settings of the server and the table. Whether the table is up to date,
// and whether the user may use it, the probe shows.
func examineTable(ctx context.Context, store *pgstore.Store) (all []Finding, err error) {
	err = store.WithConn(ctx, func(conn *pgx.Conn) error {
		var found list
		defer func() { all = found }()
		pooled, err := found.checkConnection(ctx, "postgres", conn)
		if err != nil {
			return err
		}
		found.check("postgres.pooler", "there is a way to the server without a pooler", pooled && !store.Listens(), Warning,
			"a pooler is in the path, and no address of the server itself: waiters are not notified, and look from time to time", "a way around it, for notices", "listen_url=ADDRESS in the URL (Options.Listen)")
		var standby, unlogged, logged bool
		var readOnly, fsync, pages, commit, names, creators, secured string
		var replicas int
		if err := conn.QueryRow(ctx, tableQuery, pgx.QueryExecModeSimpleProtocol, store.Schema()).Scan(
			&standby, &readOnly, &fsync, &pages, &commit, &names, &replicas, &logged, &unlogged, &creators, &secured); err != nil {
			return err
		}
		found.check("postgres.writable", "the server takes changes", standby || readOnly == "on", Failure, "this server is a standby, or transactions are read-only by default: it takes no locks",
			"the primary, and transactions that may write", "target_session_attrs=read-write in the URL, with all hosts")
		found.check("postgres.schema", "the table is there", !logged && !unlogged && !standby, Failure, fmt.Sprintf("the table %s.locks is not there", store.Schema()), "the table", "holdfast migrate --store URL")
		found.check("postgres.fsync", "fsync and full_page_writes are on", fsync == "off" || pages == "off", Warning,
			"fsync or full_page_writes is off: a crash of the machine may destroy the table", "both on",
			"ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()")
		found.check("postgres.synchronous-commit", "synchronous_commit is "+commit, commit == "off", Warning,
			"synchronous_commit is off: a crash of the server forgets locks that were just granted", "on", "ALTER ROLE ... SET synchronous_commit = on")
		found.check("postgres.standbys", "no failover forgets locks unseen", replicas > 0 && (names == "" || commit == "local"), Warning,
			"the standbys are asynchronous: a failover may forget locks that were just granted", "a synchronous standby", "ALTER SYSTEM SET synchronous_standby_names; SELECT pg_reload_conf()")
		if !logged && !unlogged {
			return nil // There is nothing to examine in a table that is not there.
		}
		found.check("postgres.unlogged", "the table is logged", unlogged, Warning, "the table is UNLOGGED: a crash of the server empties it", "a table that is logged",
			fmt.Sprintf("ALTER TABLE %s.locks SET LOGGED", store.Schema()))
		found.check("postgres.creators", "nobody else may create functions beside those of the locks", creators != "", Warning,
			"in the schema of the locks others may create functions, which run with the rights of those who lock: "+creators, "a schema of the locks' own", "REVOKE CREATE ON SCHEMA ... FROM")
		found.check("postgres.row-security", "no policy hides rows, and no trigger changes them", secured != "", Failure,
			"row-level security or a trigger may hide locks that are held: "+secured, "a table without them", "ALTER TABLE ... DISABLE ROW LEVEL SECURITY; DROP TRIGGER")
		return nil
	})
	return all, err
}

// tableQuery reads the state of the server, and of the table in the schema $1. It needs no right to
// that schema. A logical slot, an archiver and a backup are no standbys.
const tableQuery = `SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
	(SELECT count(*)::int FROM pg_stat_replication AS r WHERE coalesce(r.state NOT IN ('backup', 'startup'), true)
		AND r.application_name NOT IN ('pg_receivewal', 'pg_basebackup', 'pg_recvlogical')
		AND NOT EXISTS (SELECT FROM pg_replication_slots AS l WHERE l.active_pid = r.pid AND l.slot_type = 'logical')),
	coalesce(c.relpersistence = 'p', false), coalesce(c.relpersistence = 'u', false),
	coalesce((SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'everybody' ELSE a.grantee::regrole::text END, ', ')
		FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
		WHERE n.oid = c.relnamespace AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND NOT coalesce(r.rolsuper, false)), ''),
	concat_ws(', ', CASE WHEN row_security_active(c.oid) THEN 'row-level security is active' END,
		(SELECT string_agg(g.tgname::text, ', ') FROM pg_trigger AS g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'))
	FROM (SELECT to_regnamespace($1::text) AS oid) AS t LEFT JOIN pg_class AS c ON c.relnamespace = t.oid AND c.relname = 'locks'`

// examineAdvisory makes a connection as those for locks. Whether the server, what is in the path to
// it and the sequence of tokens are fit, the probe shows.
func examineAdvisory(ctx context.Context, store *advisory.Store) (all []Finding, err error) {
	err = store.WithConn(ctx, func(conn *pgx.Conn) error {
		var found list
		defer func() { all = found }()
		if _, err := found.checkConnection(ctx, "advisory", conn); err != nil {
			return err
		}
		found.check("advisory.tokens", "locks have fencing tokens", !store.Guarantees().Fencing, Note, "locks have no fencing tokens",
			"a sequence, if a resource is to refuse holders that are late", "tokens=NAME in the URL (TokenSequence), and holdfast migrate")
		var ends bool
		err := conn.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_settings WHERE name = 'idle_session_timeout'", pgx.QueryExecModeSimpleProtocol).Scan(&ends)
		found.check("advisory.idle-session-timeout", "the server ends the session of a holder that hangs", !ends, Warning,
			"the server has no idle_session_timeout, so that a holder that hangs keeps its locks until its connection ends", "PostgreSQL 14 or later", "upgrade it")
		return err
	})
	return all, err
}
