//go:build unix

package advisory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// examined returns the checks with what was found, and the findings.
func examined(t *testing.T, s *Store) (checks, text string) {
	t.Helper()
	findings, err := holdfast.Examine(t.Context(), s, nil)
	if err != nil {
		t.Error(err)
	}
	for _, f := range findings {
		checks += " " + strings.TrimPrefix(f.Check, "advisory.") + " " + f.Severity.String()
		if (f.Want == "") != (f.Severity == driver.SeverityOK) && f.Check != "notices" {
			t.Errorf("%+v: only what is not well has something to want", f)
		}
	}
	return strings.TrimSpace(checks), fmt.Sprint(findings)
}

// Each check has a server that is ill in just that way.
func TestExamine(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	url := server.URL("postgres")
	sequence := &Options{TokenSequence: "tokens_of_doctor"}
	const (
		own    = "version ok primary ok pooler ok tokens ok lock-table ok idle-session-timeout ok tls ok"
		probed = " latency ok probe ok notices ok"
	)
	check := func(what string, s *Store, want, says string) {
		t.Helper()
		if checks, text := examined(t, s); checks != want || !strings.Contains(text, says) {
			t.Errorf("%s: %s\n%s\nwant %s, and %q", what, checks, text, want, says)
		}
	}
	check("no tokens", open(t, server.Addr, nil), strings.Replace(own, "tokens ok", "tokens note", 1)+probed, "tokens=NAME")
	check("no sequence", open(t, server.Addr, sequence), strings.Replace(own, "tokens ok", "tokens fail", 1)+" latency ok probe fail", "try holdfast migrate")
	if err := open(t, server.Addr, sequence).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("well", open(t, server.Addr, sequence), own+probed, "was notified")

	pgtest.Execute(t, url, "CREATE ROLE patient LOGIN")
	patient := New(pgtest.OpenPool(t, strings.Replace(url, "postgres@", "patient@", 1)), sequence)
	t.Cleanup(func() { _ = patient.Close() })
	check("no rights", patient, strings.Replace(own, "tokens ok", "tokens fail", 1)+" latency ok probe fail", `tokens_of_doctor" TO "patient"`)

	pooler := servers.StartPgBouncer(t, server)
	check("pooler", open(t, pooler.Addr, sequence), strings.Replace(own, "pooler ok", "pooler fail", 1)+" latency ok probe fail", "grant a lock twice")
	sessions := servers.StartPgBouncer(t, server, "pool_mode=session")
	pooled := &Options{TokenSequence: sequence.TokenSequence, SessionPooled: true}
	if checks, text := examined(t, open(t, sessions.Addr, pooled)); !strings.HasPrefix(checks, strings.Replace(own, "pooler ok", "pooler note", 1)+" latency ok probe ok") {
		t.Errorf("pooler of sessions: %s\n%s", checks, text)
	}

	standby := servers.StartPostgresStandby(t, server, "standby")
	check("standby", open(t, standby.Addr, sequence), strings.Replace(own, "primary ok", "primary fail", 1), "target_session_attrs")
}

// The lock table of the server is shared by all programs.
func TestExamineLockTable(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "max_locks_per_transaction=300", "max_connections=20")
	pool := pgtest.OpenPool(t, server.URL("postgres"), "pool_max_conns=1")
	for _, c := range []struct{ locks, severity, says string }{{"2900", "lock-table ok", ""}, {"3100", "lock-table warn", "max_locks_per_transaction = 620, "}} {
		pgtest.QueryValue[int64](t, pool, "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, "+c.locks+") AS n")
		checks, text := examined(t, open(t, server.Addr, nil)) // which has a lock or two of its own
		if !strings.Contains(checks, c.severity) || !strings.Contains(text, "and the lock table of the server has room for 6000 locks") || !strings.Contains(text, c.says) {
			t.Errorf("%s locks: %s\n%s", c.locks, checks, text)
		}
		pgtest.QueryValue[string](t, pool, "SELECT pg_advisory_unlock_all()::text")
	}
}

// Examinations leave no lock at the server, and one of a server that is not there is an error.
func TestExamineLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	pool := pgtest.OpenPool(t, server.URL("postgres"))
	for range 2 {
		s := open(t, server.Addr, nil)
		examined(t, s)
		pgtest.Eventually(t, "end of the marks", func() bool { // which a waiter's connection takes away
			return pgtest.QueryValue[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
		})
	}
	s := open(t, server.Addr, nil)
	server.Kill()
	if findings, err := holdfast.Examine(t.Context(), s, nil); err == nil || len(findings) > 0 {
		t.Errorf("of a server that is not there: %v, %v", findings, err)
	}
}

// The server ends a session of a holder that hangs by idle_session_timeout, which sessions with
// locks set for themselves. One that is too short in the settings ends connections of the pool.
func TestExamineIdleTimeout(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	admin := server.URL("postgres")
	pgtest.Execute(t, admin, "CREATE ROLE patient LOGIN")
	for setting, want := range map[string]string{
		"0":    "ok advisory.idle-session-timeout: sessions with locks set",
		"1s":   "warn advisory.idle-session-timeout: idle_session_timeout is 1s",
		"1999": `try ALTER ROLE "patient" RESET idle_session_timeout`,
		"2s":   "ok advisory.idle-session-timeout: sessions with locks set idle_session_timeout; others have 2s",
		"1d":   "ok advisory.idle-session-timeout: sessions with locks set idle_session_timeout; others have 24h0m0s",
	} {
		pgtest.Execute(t, admin, "ALTER ROLE patient SET idle_session_timeout = '"+setting+"'")
		s := New(pgtest.OpenPool(t, strings.Replace(admin, "postgres@", "patient@", 1)), nil)
		if checks, text := examined(t, s); !strings.Contains(text, want) || !strings.Contains(checks, "probe ok") {
			t.Errorf("%s: %s\n%s\nwant %s", setting, checks, text, want)
		}
		_ = s.Close()
	}
	if f := examineIdleTimeout(nil, `"patient"`); f.Severity != driver.SeverityWarning || f.Want != "PostgreSQL 14 or later" { // as 13 answers
		t.Errorf("without the setting: %v", f)
	}
}

// A connection that leaves this host is one of TLS, or a warning.
func TestExamineTransport(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	far := New(pgtest.OpenFarPool(t, server.URL("postgres")), nil)
	t.Cleanup(func() { _ = far.Close() })
	if checks, text := examined(t, far); !strings.Contains(checks, " tls warn ") || !strings.Contains(text, "192.0.2.7:5432 is not encrypted") {
		t.Errorf("to another host: %s\n%s", checks, text)
	}
}
