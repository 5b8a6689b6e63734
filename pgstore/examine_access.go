package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// accessQuery reads what keeps the user from the functions and the rows, or runs code of others,
// and whether a synchronous standby is there. A user without pg_monitor sees that there are
// standbys, and not their states.
const accessQuery = `SELECT coalesce((SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::text, ', '::text ORDER BY p.oid)
          FROM pg_catalog.pg_proc AS p
         WHERE p.oid IN (@signatures@) AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE'::text)), ''::text),
       coalesce((SELECT pg_catalog.string_agg(t.name, ', '::text)
          FROM pg_catalog.unnest($1::text::text[]) AS t(name)
         WHERE pg_catalog.row_security_active(pg_catalog.to_regclass(t.name)::oid)), ''::text),
       coalesce((SELECT pg_catalog.string_agg(g.tgname::text || ' on '::text || g.tgrelid::pg_catalog.regclass::text, ', '::text)
          FROM pg_catalog.pg_trigger AS g
         WHERE NOT g.tgisinternal AND g.tgenabled <> 'D'::"char"
           AND g.tgrelid IN (SELECT pg_catalog.to_regclass(t.name)::oid FROM pg_catalog.unnest($1::text::text[]) AS t(name))), ''::text),
       pg_catalog.current_setting('synchronous_standby_names'::text),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication AS r WHERE r.sync_state IN ('sync'::text, 'quorum'::text)),
       (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication AS r WHERE r.sync_state IS NULL),
       coalesce((SELECT pg_catalog.string_agg(DISTINCT r.application_name::text, ', '::text) FROM pg_catalog.pg_stat_replication AS r
         WHERE r.sync_state IN ('sync'::text, 'quorum'::text) AND NOT ` + isStandby + `), ''::text)`

// examineAccess examines what a user with all rights to the tables may lack all the same. commit is
// the synchronous_commit of the locks.
func (s *Store) examineAccess(ctx context.Context, user, commit string) ([]driver.Finding, error) {
	var functions, secured, triggers, names, others string
	var synchronous, hidden int64
	tables := []string{s.expandSQL("@table@"), s.expandSQL("@waiters@"), s.expandSQL("@shares@")}
	err := s.queryRow(ctx, s.expandSQL(accessQuery), []any{arrayLiteral(tables)}, &functions, &secured, &triggers, &names, &synchronous, &hidden, &others)
	if err != nil {
		return nil, err
	}
	execute := driver.Finding{Check: "postgres.execute", Severity: driver.SeverityOK, Found: user + " may execute the functions"}
	if functions != "" {
		execute.Severity, execute.Found, execute.Want = driver.SeverityFailure, user+" may not execute "+functions, "EXECUTE on all functions of the locks"
		execute.Remedy = fmt.Sprintf("GRANT EXECUTE ON FUNCTION %s TO %s", functions, pgx.Identifier{user}.Sanitize())
	}
	security := driver.Finding{Check: "postgres.row-security", Severity: driver.SeverityOK, Found: "no policy hides rows from " + user}
	if secured != "" {
		security.Severity, security.Found, security.Want = driver.SeverityFailure, "row-level security is active, and may hide locks that are held: "+secured, "tables without it"
		security.Remedy = "ALTER TABLE ... DISABLE ROW LEVEL SECURITY"
	}
	trigger := driver.Finding{Check: "postgres.triggers", Severity: driver.SeverityOK, Found: "the tables have no triggers"}
	if triggers != "" {
		trigger.Severity, trigger.Found, trigger.Want = driver.SeverityWarning, "triggers may change or refuse what locks write, and run with the rights of each user: "+triggers, "tables without triggers"
		trigger.Remedy = "DROP TRIGGER"
	}
	standby := driver.Finding{Check: "postgres.sync-standby", Severity: driver.SeverityOK, Found: "no commit waits for a standby"}
	waits := names != "" && commit != "local" && commit != "off"
	switch {
	case waits && others != "":
		standby.Severity, standby.Found = driver.SeverityWarning, "commits wait for what is no standby, and keeps no locks: "+others
		standby.Want, standby.Remedy = "standbys alone", "the names of the standbys in synchronous_standby_names, which is "+names
	case waits && synchronous > 0:
		standby.Found = "a synchronous standby is connected"
	case waits && hidden > 0:
		standby.Severity, standby.Found = driver.SeverityUnknown, "cannot tell whether a standby is synchronous: "+user+" may not see that"
		standby.Want, standby.Remedy = "a synchronous standby that is connected", "GRANT pg_monitor TO "+pgx.Identifier{user}.Sanitize()
	case waits:
		standby.Severity, standby.Found = driver.SeverityFailure, "synchronous_standby_names is "+names+", and no such standby is connected: no lock can be taken"
		standby.Want, standby.Remedy = "a synchronous standby that is connected", "start the standby, or change synchronous_standby_names"
	}
	return []driver.Finding{execute, security, trigger, standby}, nil
}
