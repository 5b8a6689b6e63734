//go:build unix

package pgstore

import (
	"strings"
	"testing"
	"time"

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
		{"postgres.rights", "REVOKE USAGE ON SCHEMA public FROM PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC", "fail postgres.rights: ", nil},
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
	pgtest.Execute(t, primary.URL("postgres"), "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	pgtest.Execute(t, primary.URL("postgres"), "SELECT pg_reload_conf()")
	pgtest.Eventually(t, "synchronous standby", func() bool { return len(illChecks(t, s)) == 0 })
	local := openURLFor(t, primary.URL("postgres"), &Options{SynchronousCommit: "local"})
	if ill := illChecks(t, local); len(ill) != 1 || !strings.Contains(ill["postgres.standbys"], "synchronous_commit is local") {
		t.Errorf("with SynchronousCommit local: %q", ill)
	}
	primary.Kill()
	if findings, err := holdfast.Examine(t.Context(), s, nil); err == nil || len(findings) > 0 {
		t.Errorf("of a server that is not there: %v, %v", findings, err)
	}
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
