package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// warningsQuery reads the state of the server for Warnings. An index costs updates if they change
// the columns or expressions that it is made from.
var warningsQuery = `SELECT pg_catalog.current_setting('fsync'::text), pg_catalog.current_setting('full_page_writes'::text),
       pg_catalog.current_setting('synchronous_commit'::text), pg_catalog.current_setting('synchronous_standby_names'::text),
       pg_catalog.pg_is_in_recovery(),
       (SELECT c.relpersistence = 'u'::"char" FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass($1::text)::oid),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_index AS i WHERE i.indrelid = pg_catalog.to_regclass($1::text)::oid
           AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                  WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::smallint[]) AND a.attname::text = ANY ('{holder_id,acquired_at,expires_at,metadata,token,holder,granted_at,kept_by,last_token,has_waiters,notify_to}'::text[])))),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
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
         WHERE c.oid = pg_catalog.to_regclass($1::text)::oid AND c.relowner NOT IN (` + strings.ReplaceAll(pgclient.TrustedRoles, "v_schema", "pg_catalog.to_regnamespace($2::text)::oid") + `)), ''::text)`

// Warnings queries the server for settings under which it may forget locks, or which make them
// slow, and for users other than the owner that may create functions beside those of this package.
// It describes each in a sentence, for people. None is an error: the locks work, with the risk
// described.
func (s *Store) Warnings(ctx context.Context) ([]string, error) {
	var fsync, pages, commit, standbys, creators, overloads, otherOwner string
	var recovery bool
	var unlogged *bool
	var indexes, replicas int64
	args := []any{s.expandSQL("@table@"), s.expandSQL("@schema@"), arrayLiteral(s.options.functionNames()), s.expandSQL("@release_lock@(text, text)")}
	if err := s.queryRow(ctx, warningsQuery, args,
		&fsync, &pages, &commit, &standbys, &recovery, &unlogged, &indexes, &replicas, &creators, &overloads, &otherOwner); err != nil {
		return nil, err
	}
	if s.options.SynchronousCommit != "" {
		commit = s.options.SynchronousCommit
	}
	var all []string
	add := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(recovery, "this server is a standby, and takes no locks: connect to the primary")
	add(fsync == "off" || pages == "off", "fsync or full_page_writes is off: a crash of the machine may destroy the table")
	add(commit == "off", "synchronous_commit is off: a crash of the server forgets locks that were just granted")
	add(valueOrZero(unlogged), "the table is UNLOGGED: a crash of the server empties it: ALTER TABLE %s SET LOGGED", s.expandSQL("@table@"))
	add(indexes > 0, "the table has an index on a column that changes with each lock: updates cost several times as much, and the table grows")
	add(replicas > 0 && standbys == "", "the standbys are asynchronous: a failover may forget locks that were just granted (synchronous_standby_names)")
	add(standbys != "" && commit == "local", "synchronous_commit is local: a failover may forget locks that were just granted")
	add(creators != "", "in the schema %s others may create functions, which calls without casts may run (%s): "+
		"keep the locks in a schema of their own, or REVOKE CREATE ON SCHEMA %[1]s", s.expandSQL("@schema@"), creators)
	add(overloads != "", "functions of another owner have the names of this package's, and calls without casts may run them: %s", overloads)
	add(otherOwner != "", "the table belongs to %s, who is neither you nor the owner of the schema or of the database: "+
		"its triggers and functions run with the rights of everybody who locks", otherOwner)
	return all, nil
}
