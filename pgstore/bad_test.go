//go:build unix

package pgstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

var writes = []string{"Acquire", "Renew", "Release", "Break"}
var verbs = append([]string{"Lookup", "List"}, writes...)

func TestNoTable(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "no such schema"} {
		s := openIn(t, schema)
		fails(t, s, driver.ErrNotApplied, "holdfast migrate", verbs...)
		// The remedy comes first, and the types of fifteen arguments are no help.
		_, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
		text := err.Error()
		if remedy, cause := strings.Index(text, "holdfast migrate --store URL"), strings.Index(text, "SQLSTATE"); remedy < 0 || cause < remedy || strings.Count(text, ",") > 3 {
			t.Errorf("without a table: %s", text)
		}
	}
}

func TestNoPermission(t *testing.T) {
	t.Parallel()
	s := open(t)
	change(t, s, "DO $$ BEGIN CREATE ROLE nobody LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	change(t, s, "GRANT USAGE ON SCHEMA @schema@ TO nobody")
	change(t, s, "GRANT SELECT ON @table@ TO nobody")
	stranger := newPoolEngine(pgtest.OpenPool(t, strings.Replace(pgtest.Postgres().URL("postgres"), "postgres@", "nobody@", 1)), &s.options)
	t.Cleanup(func() { _ = stranger.Close() })
	fails(t, stranger, driver.ErrNotApplied, "SELECT, INSERT, UPDATE and DELETE", writes...)
	if _, _, err := stranger.Lookup(t.Context(), "name"); err != nil {
		t.Errorf("Lookup by a user who may read: %v", err)
	}
	if err := stranger.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate, by a user who may not, of what is up to date: %v", err)
	}
	stranger.options.Schema = "forbidden"
	stranger.placeholders = stranger.options.placeholders()
	if err := stranger.Migrate(t.Context()); err == nil || !driver.IsNotApplied(err) {
		t.Errorf("Migrate by a user who may not: %v, want an error that nothing was changed", err)
	}
}

// A user that the server does not know is what the error is about, and not the TLS of the first of
// two attempts to connect.
func TestWrongUser(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(pgtest.Postgres().URL("postgres"), "postgres@", "unknown@", 1)
	s := newPoolEngine(pgtest.OpenPool(t, strings.Replace(wrong, "sslmode=disable", "sslmode=prefer", 1)), nil)
	t.Cleanup(func() { _ = s.Close() })
	_, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
	if err == nil || strings.Contains(err.Error(), "tls") || !strings.Contains(err.Error(), "does not accept this user") {
		t.Errorf("an unknown user: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := open(t)
	reader := openIn(t, s.options.Schema, "options=-c%20default_transaction_read_only%3Don")
	grant(t, s, "held", time.Minute)
	fails(t, reader, driver.ErrNotApplied, "connect to the primary", "Acquire")
	if _, found, err := reader.Lookup(t.Context(), "held"); !found || err != nil {
		t.Errorf("Lookup at a server that takes no writes: %v, %v", found, err)
	}
}

// A statement that the server cuts short has done nothing, and the connection
// goes on.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	s := open(t)
	hasty := openIn(t, s.options.Schema, "options=-c%20statement_timeout%3D50", "pool_max_conns=1")
	lockRow(t, s, "name")
	fails(t, hasty, driver.ErrNotApplied, "statement_timeout", "Acquire")
	pgtest.Eventually(t, "grant in less than the timeout, on the same connection", func() bool {
		res, err := hasty.Acquire(t.Context(), pgtest.Request("other name", time.Minute))
		return err == nil && res.Granted
	})
}

// lockRow locks the row of a free lock, as a person does who forgets to commit,
// until the function it returns is called.
func lockRow(t *testing.T, s *engine, name string) (unlock func()) {
	t.Helper()
	release(t, s, grant(t, s, name, time.Minute))
	return lockAnyRow(t, s, name)
}

func lockAnyRow(t *testing.T, s *engine, name string) (unlock func()) {
	t.Helper()
	tx, err := s.pool.(pgxPool).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), s.expandSQL("SELECT FROM @table@ WHERE lock_name = $1 FOR UPDATE"), name); err != nil {
		t.Fatal(err)
	}
	unlock = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(unlock)
	return unlock
}

// A row that somebody has locked by hand costs the other locks nothing.
func TestRenewBesideLockedRow(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=4")
	a, b, c := grant(t, s, "a", time.Minute), grant(t, s, "b", time.Minute), grant(t, s, "c", time.Minute)
	release(t, s, c)
	unlock := lockAnyRow(t, s, "b")
	outcomes, err := s.Renew(t.Context(), pgtest.Renewals(c, b, a))
	if err == nil || outcomes[0] != olddriver.RenewLost || outcomes[1] != olddriver.RenewUnknown || outcomes[2] != olddriver.Renewed {
		t.Errorf("Renew beside a locked row: %v, %v, want lost, unknown, renewed, and why", outcomes, err)
	}
	unlock()
	if got := renew(t, s, b); got[0] != olddriver.Renewed {
		t.Errorf("Renew of a row that was locked: %v", got)
	}
}

func TestServerGone(t *testing.T) {
	t.Parallel()
	s := newPoolEngine(pgtest.OpenPool(t, "postgres://postgres@127.0.0.1:1/postgres?sslmode=disable"), nil)
	t.Cleanup(func() { _ = s.Close() })
	fails(t, s, driver.ErrNotApplied, "", verbs...)
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	s := open(t)
	req := pgtest.Request("name", time.Minute)
	req.Metadata = map[string]string{"note": strings.Repeat("x", 1<<20)}
	if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire with metadata of 1 MB: %v, want ErrInvalid", err)
	}
	fail := func(what, text string, args ...any) {
		t.Helper()
		err := s.execQuery(t.Context(), s.expandSQL(text), args...)
		if err == nil || !driver.IsNotApplied(err) {
			t.Errorf("%s: %v, want an error", what, err)
		}
	}
	fail("acquire_lock with metadata of 1 MB", "SELECT @acquire_lock@('name', 'worker', 30, jsonb_build_object('a', $1::text))", strings.Repeat("x", 1<<20))
	fail("acquire_lock without a TTL", "SELECT @acquire_lock@('name', 'worker', 0)")
	fail("acquire_lock without a holder", "SELECT @acquire_lock@('name', '')")
	if _, err := s.Acquire(t.Context(), pgtest.Request(strings.Repeat("n", 300), time.Minute)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire of a name of 300 characters: %v, want ErrInvalid", err)
	}
	fail("acquire_lock of a name of 300 characters", "SELECT @acquire_lock@($1, 'worker')", strings.Repeat("n", 300))
	grant(t, s, "name", time.Minute)
}

// Rows that were written by hand: the locks work, or the error says what to mend.
func TestNonsenseRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	insert := func(name, acquired, expires, metadata string, token int64) {
		t.Helper()
		change(t, s, "INSERT INTO @table@ (lock_name, holder_id, acquired_at, expires_at, metadata, token) "+
			"VALUES ($1, 'hand', $2::text::timestamptz, $3::text::timestamptz, $4::text::jsonb, $5)", name, acquired, expires, metadata, token)
	}
	insert("for ever", "-infinity", "infinity", `[1, 2]`, -5)
	insert("long ago", "infinity", "-infinity", `null`, -5)
	insert("huge", "now", "now", `"text"`, 1<<60)
	insert("overflow", "now", "now", `{"a": {"b": 1}, "c": "d"}`, 1<<63-1)
	insert("at the end", "now", "now", `{}`, driver.MaxToken)
	held := refuse(t, s, "for ever")
	if held.Holder != "hand" || held.Remaining < driver.MaxTTL || held.Metadata["value"] != "[1, 2]" || held.Token != 0 {
		t.Errorf("a row that is held for ever is shown as %+v", held)
	}
	grant(t, s, "long ago", time.Minute)
	for name, want := range map[string]error{"huge": driver.ErrCorrupt, "overflow": driver.ErrCorrupt, "at the end": driver.ErrInvalid} {
		for range 2 { // The second attempt is at a row that is known to be there.
			if _, err := s.Acquire(t.Context(), pgtest.Request(name, time.Minute)); !errors.Is(err, want) {
				t.Errorf("Acquire of %q: %v, want %v", name, err, want)
			}
			s.nameCache.set(name, stateFree, 0)
		}
	}
	listed := 0
	for _, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Errorf("List: %v", err)
		}
		listed++
	}
	if listed != 2 {
		t.Errorf("List yields %d records, want those of the 2 that are held", listed)
	}
	if rec, found, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "for ever"}); err != nil || !found || rec.Holder != "hand" {
		t.Errorf("Break: %+v, %v, %v", rec, found, err)
	}
	grant(t, s, "for ever", time.Minute)
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for what, s := range map[string]*engine{
		"no pool":              newPoolEngine(nil, nil),
		"no database/sql pool": newDBEngine(nil, nil),
		"another driver":       newDBEngine(sql.OpenDB(nothingConnector{}), nil),
		"long table":           newPoolEngine(pool, &Options{Table: strings.Repeat("t", maxTable+1)}),
		"NUL":                  newPoolEngine(pool, &Options{Schema: "a\x00"}),
	} {
		t.Run(what, func(t *testing.T) { fails(t, s, driver.ErrInvalid, "", verbs...) })
	}
}

// A nothingConnector is of another driver than pgx.
type nothingConnector struct{ sqldriver.Connector }

func (nothingConnector) Driver() sqldriver.Driver { return nil }

func TestURL(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	open, _ := driver.Lookup("postgres")
	parse := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	store, err := open(t.Context(), parse(pgtest.Postgres().URL("postgres")+"&synchronous_commit=off&pool_max_conns=2&schema="+url.QueryEscape(schema)))
	if err != nil {
		t.Fatal(err)
	}
	s := store.(*Store).engine
	release(t, s, grant(t, s, "name", time.Minute))
	var name, level string
	query(t, s, "SELECT current_setting('application_name'), current_setting('synchronous_commit')", nil, &name, &level)
	if name != "holdfast" || level != "off" {
		t.Errorf("application_name is %q, and synchronous_commit %q", name, level)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{
		"postgres://u:Secret@h/db?sslmode=perhaps", "postgres://u:Secret@h/db?tabel=x", "postgres://u:Secret@h/db?listen=perhaps",
		"postgres://u:Secret@h/db?pool_max_conns=Secret", "postgres://u:Secret@h:99999/db",
		"postgres://u:Secret@h/db#x", "postgres:x", "postgres://u:Secret@h/db?table=a&table=b",
	} {
		_, err := open(t.Context(), parse(text))
		if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: %v, want ErrInvalid without the password", text, err)
		}
	}
}

// What the URL leaves out comes from the environment, as in libpq.
func TestURLEnvironment(t *testing.T) {
	host, port, err := net.SplitHostPort(pgtest.Postgres().Addr)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"PGHOST": host, "PGPORT": port, "PGUSER": "postgres", "PGDATABASE": "postgres", "PGSSLMODE": "disable"} {
		t.Setenv(name, value)
	}
	open, _ := driver.Lookup("postgresql")
	schema := "schema=" + url.QueryEscape(newSchema(t))
	for _, text := range []string{"postgresql://?", "postgresql:///postgres?", "postgresql://?application_name=x&"} {
		u, err := url.Parse(text + schema)
		if err != nil {
			t.Fatal(err)
		}
		store, err := open(t.Context(), u)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, _, err := store.(*Store).engine.Break(t.Context(), olddriver.BreakRequest{Name: "no such"}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
