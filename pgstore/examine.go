package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

var _ driver.Examiner = (*Store)(nil)

// examineQuery reads the state of the server. An index costs updates if they change the columns or
// expressions that it is made from.
var examineQuery = `SELECT pg_catalog.current_setting('server_version'::text), pg_catalog.current_setting('fsync'::text), pg_catalog.current_setting('full_page_writes'::text),
       pg_catalog.current_setting('synchronous_commit'::text), pg_catalog.current_setting('synchronous_standby_names'::text),
       pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only'::text), current_user::text,
       pg_catalog.to_regprocedure($5::text) IS NOT NULL,
       coalesce((SELECT pg_catalog.string_agg(t.name || ':'::text || p.privilege, ','::text)
          FROM pg_catalog.unnest($6::text::text[]) AS t(name), pg_catalog.unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS p(privilege)
         WHERE NOT pg_catalog.has_table_privilege(pg_catalog.to_regclass(t.name)::oid, p.privilege)), ''::text),
       pg_catalog.to_regclass($1::text) IS NOT NULL,
       (SELECT c.relpersistence = 'u'::"char" FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass($1::text)::oid),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index AS i WHERE i.indrelid = pg_catalog.to_regclass($1::text)::oid
           AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                  WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::smallint[]) AND a.attname::text = ANY ('{holder_id,acquired_at,expires_at,metadata,token,holder,granted_at,kept_by,last_token,has_waiters,notify_to}'::text[])))),
       coalesce((SELECT pg_catalog.string_agg(DISTINCT '"'::text || pg_catalog.replace(r.application_name::text, '"'::text, '""'::text) || '"'::text, ', '::text)
          FROM pg_catalog.pg_stat_replication AS r WHERE ` + isStandby + `), ''::text),
       coalesce((SELECT pg_catalog.string_agg(DISTINCT CASE a.grantee WHEN 0::oid THEN 'everybody'::text ELSE a.grantee::regrole::text END, ', '::text)
          FROM pg_catalog.pg_namespace AS n, pg_catalog.aclexplode(coalesce(n.nspacl, pg_catalog.acldefault('n'::"char", n.nspowner))) AS a
          LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
         WHERE n.oid = pg_catalog.to_regnamespace($2::text)::oid AND a.privilege_type = 'CREATE'::text AND a.grantee <> n.nspowner
           AND NOT coalesce(r.rolsuper, false)), ''::text),
       coalesce((SELECT pg_catalog.string_agg(p.oid::regprocedure::text || ' of '::text || p.proowner::regrole::text, ', '::text)
          FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = pg_catalog.to_regnamespace($2::text)::oid AND p.proname::text = ANY ($3::text::text[])
           AND p.proowner <> (SELECT o.proowner FROM pg_catalog.pg_proc AS o
                 WHERE o.oid = pg_catalog.to_regprocedure($4::text)::oid)), ''::text),
       coalesce((SELECT c.relowner::regrole::text FROM pg_catalog.pg_class AS c
         WHERE c.oid = pg_catalog.to_regclass($1::text)::oid AND c.relowner NOT IN (` + strings.ReplaceAll(pgclient.TrustedRoles, "v_schema", "pg_catalog.to_regnamespace($2::text)::oid") + `)), ''::text),
       coalesce((SELECT n.nspowner::regrole::text FROM pg_catalog.pg_namespace AS n WHERE n.oid = pg_catalog.to_regnamespace($2::text)::oid), ''::text)`

// isStandby is true for a row r of pg_stat_replication that is a standby, and false for a consumer
// of changes, an archiver, a backup, and one that has not begun to stream. The state is NULL for a
// user without pg_monitor.
const isStandby = `(NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS l WHERE l.active_pid = r.pid AND l.slot_type = 'logical'::text)
           AND coalesce(r.state NOT IN ('backup'::text, 'startup'::text), true)
           AND r.application_name NOT IN ('pg_receivewal'::text, 'pg_basebackup'::text, 'pg_recvlogical'::text))`

// Examine implements [driver.Examiner]. It examines the settings of the server, the table and its
// functions, the rights of the user, and those of others, and whether a pooler is in the path.
func (s *Store) Examine(ctx context.Context, _ driver.Examination) ([]driver.Finding, error) {
	var version, fsync, pages, commit, standbys, readOnly, user, missing, creators, overloads, otherOwner, connected, schemaOwner string
	var recovery, current, exists bool
	var unlogged *bool
	var indexes int64
	table, waiters, shares := s.expandSQL("@table@"), s.expandSQL("@waiters@"), s.expandSQL("@shares@")
	latest := s.expandSQL("@holdfast_acquire@(" + signatures["holdfast_acquire"][0] + ")")
	args := []any{table, s.expandSQL("@schema@"), arrayLiteral(s.options.functionNames()), s.expandSQL("@release_lock@(text, text)"),
		latest, arrayLiteral([]string{table, waiters, shares})}
	err := s.queryRow(ctx, examineQuery, args, &version, &fsync, &pages, &commit, &standbys, &recovery, &readOnly, &user, &current, &missing,
		&exists, &unlogged, &indexes, &connected, &creators, &overloads, &otherOwner, &schemaOwner)
	const rights = "postgres.rights"
	if pgclient.SQLState(err) == "42501" { // of the schema
		return []driver.Finding{{Check: rights, Severity: driver.SeverityFailure, Found: err.Error(), Want: "USAGE on the schema",
			Remedy: s.expandSQL("GRANT USAGE ON SCHEMA @schema@ TO ") + s.quotedUser(ctx)}}, nil
	}
	if err != nil {
		return nil, err
	}
	quoted := pgx.Identifier{user}.Sanitize()
	if s.options.SynchronousCommit != "" {
		commit = s.options.SynchronousCommit
	}

	pooled, encryption, err := s.examineConnection(ctx)
	if err != nil {
		return nil, err
	}
	all := []driver.Finding{pgclient.ExamineVersion("postgres.version", version), encryption}
	// check adds a finding: ok, unless when is true.
	check := func(id, ok string, when bool, severity driver.Severity, found, want, remedy string) {
		f := driver.Finding{Check: "postgres." + id, Severity: driver.SeverityOK, Found: ok}
		if when {
			f.Severity, f.Found, f.Want, f.Remedy = severity, found, want, remedy
		}
		all = append(all, f)
	}
	const fail, warn = driver.SeverityFailure, driver.SeverityWarning
	if recovery {
		check("writable", "", true, fail, "this server is a standby, and takes no locks", "the primary", "target_session_attrs=read-write in the URL, with all hosts")
		return all, nil
	}
	check("writable", "the server takes changes", readOnly != "off", fail, "transactions are read-only by default", "transactions that may write",
		fmt.Sprintf("ALTER ROLE %s RESET default_transaction_read_only, or the same of the database or the server", quoted))
	check("schema", "the table and its functions are there", !exists || !current, fail,
		fmt.Sprintf("the table %s or its functions are not there, or older than this program", table), "a table that is up to date", "holdfast migrate --store URL")
	if !exists || !current {
		return all, nil
	}
	severity, lack := warn, user+" lacks rights, and cannot wait in line or hold together with others: "+missing
	if strings.Contains(","+missing, ","+table+":") {
		severity, lack = fail, user+" lacks rights: "+missing
	}
	check("rights", user+" has all rights", missing != "", severity, lack, "all rights to the three tables",
		fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON %s, %s, %s TO %s", table, waiters, shares, quoted))
	if severity = warn; s.options.NoListen {
		severity = driver.SeverityNote
	}
	check("pooler", "the connection is to the server itself", pooled, severity, "a pooler is in the path, or the client library is not pgx: waiters are not notified, and not served in order",
		"connections to the server itself", "its address in the URL; or listen=false (NoListen), if that is as it should be")
	check("fsync", "fsync and full_page_writes are on", fsync == "off" || pages == "off", warn,
		"fsync or full_page_writes is off: a crash of the machine may destroy the table", "both on", "ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()")
	check("synchronous-commit", "synchronous_commit is "+commit, commit == "off", warn, "synchronous_commit is off: a crash of the server forgets locks that were just granted",
		"on", "synchronous_commit=on in the URL (SynchronousCommit)")
	check("unlogged", "the table is logged", unlogged != nil && *unlogged, warn, "the table is UNLOGGED: a crash of the server empties it", "a table that is logged",
		fmt.Sprintf("ALTER TABLE %s SET LOGGED", table))
	check("index", "no index costs updates", indexes > 0, warn,
		"the table has an index on a column that changes with each lock: updates cost several times as much, and the table grows", "the primary key alone", "DROP INDEX")
	if connected != "" && standbys == "" {
		check("standbys", "", true, warn, "the standbys are asynchronous: a failover may forget locks that were just granted", "a synchronous standby, and require_standby=true (RequireStandby)",
			fmt.Sprintf("ALTER SYSTEM SET synchronous_standby_names = '%s'; SELECT pg_reload_conf(): all commits of the server wait while none of them is connected",
				strings.ReplaceAll("ANY 1 ("+connected+")", "'", "''")))
	} else {
		check("standbys", "no failover forgets locks unseen", standbys != "" && (commit == "local" || commit == "off"), warn,
			fmt.Sprintf("synchronous_commit is %s: a failover may forget locks that were just granted", commit), "on", "synchronous_commit=on in the URL (SynchronousCommit)")
	}
	check("creators", "nobody else may create functions beside those of the locks", creators != "", warn,
		fmt.Sprintf("in the schema %s others may create functions, which calls without casts may run: %s", s.expandSQL("@schema@"), creators),
		"a schema of the locks' own", s.expandSQL("REVOKE CREATE ON SCHEMA @schema@ FROM ")+strings.Replace(creators, "everybody", "PUBLIC", 1))
	check("overloads", "no function of others has a name of ours", overloads != "", warn,
		"functions of another owner have the names of this package's, and calls without casts may run them: "+overloads, "none", "DROP FUNCTION")
	check("owner", "the table belongs to one whom its users trust", otherOwner != "", warn,
		fmt.Sprintf("the table belongs to %s, who is neither you nor the owner of the schema or of the database: its triggers and functions run with the rights of everybody who locks", otherOwner),
		"a table of the owner of its schema", fmt.Sprintf("ALTER TABLE %s OWNER TO %s", table, schemaOwner))
	access, err := s.examineAccess(ctx, user, commit)
	return append(all, access...), err
}

// quotedUser returns the user as an identifier of SQL, NAME if the server does not answer.
func (s *Store) quotedUser(ctx context.Context) string {
	var user string
	if s.queryRow(ctx, "SELECT current_user::text", nil, &user) != nil {
		return "NAME"
	}
	return pgx.Identifier{user}.Sanitize()
}

// examineConnection reports whether statements reach another server process than that of the
// connection, or the client library does not show the latter, and whether it is encrypted.
func (s *Store) examineConnection(ctx context.Context) (pooled bool, encryption driver.Finding, err error) {
	const check = "postgres.tls"
	unknown := transport.Examine(check, nil, nil, false, "")
	if !s.pool.canListen() {
		return true, unknown, nil
	}
	err = s.queryOnConn(ctx, func(ctx context.Context, c conn, unprepared bool) error {
		raw, err := c.rawConn()
		if err != nil {
			return err
		}
		var pid uint32
		err = c.query(ctx, unprepared, pgclient.PingStatement, nil, func(scan scanner) error { return scan(&pid) })
		if raw == nil {
			pooled, encryption = true, unknown
		} else {
			pooled, encryption = pid != raw.PgConn().PID(), pgclient.ExamineTransport(check, raw.PgConn())
		}
		return err
	})
	return pooled, encryption, err
}

// Forget implements [driver.Examiner]. It deletes the row of a name that is free.
func (s *Store) Forget(ctx context.Context, name string) error {
	return s.execQuery(ctx, s.expandSQL("DELETE FROM @table@ AS t WHERE t.lock_name::text = $1::text AND t.expires_at <= pg_catalog.clock_timestamp()"), name)
}
