//go:build unix

package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// illChecks returns the findings of the store's own checks that are not OK, by their names.
func illChecks(t *testing.T, s *Store) map[string]string {
	t.Helper()
	findings, err := s.Examine(t.Context(), driver.Examination{TTL: time.Minute})
	if err != nil || len(findings) == 0 {
		t.Errorf("Examine: %v, %v", findings, err)
	}
	ill := map[string]string{}
	for _, f := range findings {
		if (f.Want == "") != (f.Severity == driver.SeverityOK) || (f.Remedy == "") != (f.Want == "") {
			t.Errorf("%+v: only what is not well has something to want, and a remedy", f)
		}
		if f.Severity != driver.SeverityOK {
			ill[f.Check] = f.String()
		}
	}
	return ill
}

// examinedServer is a server of its own, with a user that may lock and do no more.
func examinedServer(t *testing.T, settings ...string) (admin, user string) {
	t.Helper()
	admin = servers.StartPostgres(t, settings...).URL("postgres")
	pgtest.Execute(t, admin, "CREATE ROLE patient LOGIN")
	migrated(t, admin, nil)
	for _, table := range []string{"", "_waiters", "_shares"} {
		pgtest.Execute(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks"+table+" TO patient")
	}
	return admin, strings.Replace(admin, "postgres@", "patient@", 1)
}

func openURLFor(t *testing.T, url string, opts *Options) *Store {
	t.Helper()
	s := New(pgtest.OpenPool(t, url), opts)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A server that is well has nothing to report; then it is made ill in one way after the other.
func TestExamine(t *testing.T) {
	t.Parallel()
	admin, user := examinedServer(t)
	well := func(what string) {
		t.Helper()
		if ill := illChecks(t, openURLFor(t, user, nil)); len(ill) > 0 {
			t.Errorf("%s: %q", what, ill)
		}
	}
	well("at first")
	for _, c := range []struct {
		check, ill, mend, says string
		opts                   *Options
	}{
		{"postgres.writable", "ALTER ROLE patient SET default_transaction_read_only = on", "ALTER ROLE patient RESET default_transaction_read_only", "fail postgres.writable: transactions are read-only", nil},
		{"postgres.schema", "ALTER FUNCTION holdfast_acquire RENAME TO aside", "ALTER FUNCTION aside RENAME TO holdfast_acquire", "fail postgres.schema: the table", nil},
		{"postgres.schema", "SELECT", "SELECT", "try holdfast migrate", &Options{Table: "elsewhere"}},
		{"postgres.rights", "REVOKE UPDATE ON distributed_locks FROM patient", "GRANT UPDATE ON distributed_locks TO patient", `fail postgres.rights: patient lacks rights: "public"."distributed_locks":UPDATE`, nil},
		{"postgres.rights", "REVOKE DELETE ON distributed_locks_waiters FROM patient", "GRANT DELETE ON distributed_locks_waiters TO patient", "warn postgres.rights: patient lacks rights, and cannot wait in line", nil},
		{"postgres.rights", "REVOKE USAGE ON SCHEMA public FROM PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC", `try GRANT USAGE ON SCHEMA "public" TO "patient"`, nil},
		{"postgres.fsync", "ALTER SYSTEM SET fsync = off", "ALTER SYSTEM RESET fsync", "warn postgres.fsync: fsync or full_page_writes is off", nil},
		{"postgres.execute", "REVOKE EXECUTE ON FUNCTION holdfast_acquire FROM PUBLIC", "GRANT EXECUTE ON FUNCTION holdfast_acquire TO PUBLIC", "fail postgres.execute: patient may not execute holdfast_acquire(text", nil},
		{"postgres.row-security", "ALTER TABLE distributed_locks ENABLE ROW LEVEL SECURITY", "ALTER TABLE distributed_locks DISABLE ROW LEVEL SECURITY", `fail postgres.row-security: row-level security is active, and may hide locks that are held: "public"."distributed_locks"`, nil},
		{"postgres.triggers", "CREATE FUNCTION nosy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER nosy BEFORE UPDATE ON distributed_locks_shares FOR EACH ROW EXECUTE FUNCTION nosy()", "DROP FUNCTION nosy CASCADE", "warn postgres.triggers: triggers may change or refuse what locks write, and run with the rights of each user: nosy on distributed_locks_shares", nil},
		{"postgres.sync-standby", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "ALTER SYSTEM RESET synchronous_standby_names", "fail postgres.sync-standby: synchronous_standby_names is nobody", nil},
		{"postgres.fsync", "ALTER SYSTEM SET full_page_writes = off", "ALTER SYSTEM RESET full_page_writes", "warn postgres.fsync: fsync or full_page_writes is off", nil},
		{"postgres.synchronous-commit", "ALTER ROLE patient SET synchronous_commit = off", "ALTER ROLE patient RESET synchronous_commit", "warn postgres.synchronous-commit", nil},
		{"postgres.synchronous-commit", "SELECT", "SELECT", "forgets locks that were just granted", &Options{SynchronousCommit: "off"}},
		{"postgres.unlogged", "ALTER TABLE distributed_locks SET UNLOGGED", "ALTER TABLE distributed_locks SET LOGGED", `try ALTER TABLE "public"."distributed_locks" SET LOGGED`, nil},
		{"postgres.index", "CREATE INDEX costly ON distributed_locks (expires_at)", "DROP INDEX costly", "warn postgres.index", nil},
		{"postgres.creators", "GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", `try REVOKE CREATE ON SCHEMA "public" FROM PUBLIC`, nil},
	} {
		pgtest.Execute(t, admin, c.ill)
		pgtest.Execute(t, admin, "SELECT pg_reload_conf()")
		ill := map[string]string{}
		pgtest.Eventually(t, c.says, func() bool { // The reload takes a moment.
			ill = illChecks(t, openURLFor(t, user, c.opts))
			return len(ill) > 0
		})
		if len(ill) != 1 || !strings.Contains(ill[c.check], c.says) {
			t.Errorf("after %s: %q, want only %s, with %q", c.ill, ill, c.check, c.says)
		}
		pgtest.Execute(t, admin, c.mend)
		pgtest.Execute(t, admin, "SELECT pg_reload_conf()")
		pgtest.Eventually(t, "mended: "+c.mend, func() bool { return len(illChecks(t, openURLFor(t, user, nil))) == 0 })
	}
}

// The overloads and tables of others are in TestHostileOverloads and TestMigrationRole.

// A standby takes no locks, and its primary may lose them.
func TestExamineStandby(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t)
	migrated(t, primary.URL("postgres"), nil)
	standby := servers.StartPostgresStandby(t, primary, "standby")
	if ill := illChecks(t, openURLFor(t, standby.URL("postgres"), nil)); len(ill) != 1 || !strings.HasPrefix(ill["postgres.writable"], "fail postgres.writable: this server is a standby") {
		t.Errorf("of the standby: %q", ill)
	}
	s := openURLFor(t, primary.URL("postgres"), nil)
	pgtest.Eventually(t, "standby", func() bool { return strings.Contains(illChecks(t, s)["postgres.standbys"], "asynchronous") })
	if says := illChecks(t, s)["postgres.standbys"]; !strings.Contains(says, `synchronous_standby_names = 'ANY 1 ("standby")'; SELECT pg_reload_conf(): all commits`) {
		t.Errorf("of the primary: %s", says)
	}
	pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "synchronous standby", func() bool { return len(illChecks(t, s)) == 0 })
	pgtest.Execute(t, primary.URL("postgres"), "CREATE ROLE patient LOGIN")
	for _, table := range []string{"", "_waiters", "_shares"} {
		pgtest.Execute(t, primary.URL("postgres"), "GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks"+table+" TO patient")
	}
	blind := openURLFor(t, strings.Replace(primary.URL("postgres"), "postgres@", "patient@", 1), nil)
	if ill := illChecks(t, blind); len(ill) != 1 || !strings.HasPrefix(ill["postgres.sync-standby"], "unknown postgres.sync-standby: cannot tell") {
		t.Errorf("by a user who may not see the states: %q", ill)
	}
	local := openURLFor(t, primary.URL("postgres"), &Options{SynchronousCommit: "local"})
	if ill := illChecks(t, local); len(ill) != 1 || !strings.Contains(ill["postgres.standbys"], "synchronous_commit is local") {
		t.Errorf("with SynchronousCommit local: %q", ill)
	}
	primary.Kill()
	if findings, err := holdfast.Examine(t.Context(), s, nil); err == nil || len(findings) > 0 {
		t.Errorf("of a server that is not there: %v, %v", findings, err)
	}
}

// A consumer of changes is no standby: no advice to wait for it is given, and where commits wait
// for it that is found.
func TestExamineConsumer(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "wal_level=logical")
	url := server.URL("postgres")
	migrated(t, url, nil)
	s := openURLFor(t, url, nil)
	pgtest.Execute(t, url, "CREATE PUBLICATION everything")
	config, err := pgconn.ParseConfig(url + "&replication=database&application_name=consumer")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE_REPLICATION_SLOT changes TEMPORARY LOGICAL pgoutput").ReadAll(); err != nil {
		t.Fatal(err)
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT changes LOGICAL 0/0 (proto_version '1', publication_names 'everything')"})
	status := make([]byte, 34) // "r", what is written, flushed and applied, a time, and whether to answer
	status[0], status[8], status[16], status[24] = 'r', 1, 1, 1
	conn.Frontend().Send(&pgproto3.CopyData{Data: status})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	pgtest.Eventually(t, "stream of the consumer", func() bool {
		var n int
		query(t, s, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", nil, &n)
		return n == 1
	})
	if ill := illChecks(t, s); len(ill) != 0 {
		t.Errorf("of a server with a consumer: %q", ill)
	}
	pgtest.Execute(t, url, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
	pgtest.Execute(t, url, "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "commits that wait for the consumer", func() bool {
		return strings.HasPrefix(illChecks(t, s)["postgres.sync-standby"], "warn postgres.sync-standby: commits wait for what is no standby, and keeps no locks: consumer")
	})
}

// Through a pooler waiters are not notified; that can be meant.
func TestExaminePooler(t *testing.T) {
	t.Parallel()
	admin, _ := examinedServer(t)
	for what, c := range map[string]struct {
		url  string
		opts *Options
		want string
	}{
		"direct":     {admin, nil, "notices ok"},
		"not to pgx": {admin, &Options{NoListen: true}, "notices note"},
		"pooled":     {pgtest.PgBouncer().URL("postgres"), &Options{Schema: newSchema(t)}, "postgres.pooler warn, notices warn"},
		"meant":      {pgtest.PgBouncer().URL("postgres"), &Options{Schema: newSchema(t), NoListen: true}, "postgres.pooler note, notices note"},
	} {
		findings, err := holdfast.Examine(t.Context(), openURLFor(t, c.url, c.opts), nil)
		var got []string
		for _, f := range findings {
			if f.Check == "postgres.pooler" && f.Severity != driver.SeverityOK || f.Check == "notices" || f.Severity == driver.SeverityFailure {
				got = append(got, f.Check+" "+f.Severity.String())
			}
		}
		if strings.Join(got, ", ") != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %s: %q", what, got, err, c.want, findings)
		}
	}
}

// Examinations leave no row, also those of a table that is ill.
func TestExamineLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	grant(t, s, "held", time.Minute)
	for range 2 {
		findings, err := holdfast.Examine(t.Context(), s, nil)
		if last := findings[len(findings)-1]; err != nil || last.Check != "notices" || last.Severity != driver.SeverityOK {
			t.Errorf("%q, %v", findings, err)
		}
		var names string
		query(t, s, "SELECT (SELECT string_agg(lock_name, ' ') FROM @table@) || (SELECT count(*) FROM @waiters@) || (SELECT count(*) FROM @shares@)", nil, &names)
		if names != "held00" {
			t.Errorf("left: %s", names)
		}
	}
	if err := s.Forget(t.Context(), "held"); err != nil {
		t.Error(err)
	}
	if _, found, err := s.Lookup(t.Context(), "held"); !found || err != nil {
		t.Errorf("Forget has ended a hold: %v, %v", found, err)
	}
}

// A connection that leaves this host is one of TLS, or a warning.
func TestExamineTransport(t *testing.T) {
	t.Parallel()
	admin, _ := examinedServer(t)
	pgtest.EnableTLS(t, admin)
	encrypted := strings.Replace(admin, "sslmode=disable", "sslmode=require", 1)
	for what, c := range map[string]struct {
		far  bool
		url  string
		says string // of the finding, "" if all is well
	}{
		"this host":         {false, admin, ""},
		"this host, TLS":    {false, encrypted, ""},
		"another host":      {true, admin, "warn postgres.tls: the connection to 192.0.2.7:5432 is not encrypted"},
		"another host, TLS": {true, encrypted, ""},
	} {
		pool := pgtest.OpenPool(t, c.url)
		if c.far {
			pool = pgtest.OpenFarPool(t, c.url)
		}
		pgtest.Eventually(t, "server that speaks TLS if it is to", func() bool { return pool.Ping(t.Context()) == nil }) // The reload takes a moment.
		s := New(pool, nil)
		ill := illChecks(t, s)
		if len(ill) > 1 || !strings.HasPrefix(ill["postgres.tls"], c.says) || (len(ill) == 0) != (c.says == "") {
			t.Errorf("%s: %q, want %q", what, ill, c.says)
		}
		_ = s.Close()
	}
}

// A migration without the right to create says what to grant, and a lock without EXECUTE what it
// needs.
func TestErrorsOfMissingRights(t *testing.T) {
	t.Parallel()
	admin := servers.StartPostgres(t).URL("postgres")
	pgtest.Execute(t, admin, "CREATE ROLE \"app-1\" LOGIN")
	user := strings.Replace(admin, "postgres@", "app-1@", 1)
	for schema, want := range map[string]string{
		"public":    `migrate once as the owner of the schema "public"; or use another (schema=locks), after CREATE SCHEMA locks AUTHORIZATION "app-1"`,
		"elsewhere": `CREATE SCHEMA "elsewhere" AUTHORIZATION "app-1"`,
	} {
		if err := openURLFor(t, user, &Options{Schema: schema}).Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
	migrated(t, admin, nil)
	for _, table := range []string{"", "_waiters", "_shares"} {
		pgtest.Execute(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks"+table+" TO \"app-1\"")
	}
	pgtest.Execute(t, admin, "REVOKE EXECUTE ON FUNCTION holdfast_acquire FROM PUBLIC")
	if says := illChecks(t, openURLFor(t, user, nil))["postgres.execute"]; !strings.HasSuffix(says, ` TO "app-1"`) {
		t.Errorf("the remedy does not quote the user: %s", says)
	}
	_, err := openURLFor(t, user, nil).Acquire(t.Context(), driver.AcquireRequest{Name: "x", Owner: "me", TTL: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "EXECUTE on their functions") {
		t.Errorf("without EXECUTE: %v", err)
	}
}
