//go:build unix

package pgstore

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Many processes that start at the same time set the table up once.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Postgres().URL("postgres")
	for _, parameter := range []string{"", "default_transaction_isolation=serializable"} {
		opts := &Options{Schema: "At once " + parameter, Table: `odd "table`}
		var wg sync.WaitGroup
		for i := range 8 {
			s := newPoolEngine(pgtest.OpenPool(t, url, parameter), opts)
			if i%2 == 0 {
				s = newDBEngine(pgtest.OpenSQL(t, url, parameter), opts)
			}
			t.Cleanup(func() { _ = s.Close() })
			wg.Go(func() {
				if err := s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
				release(t, s, grant(t, s, "name/"+string(rune('a'+i)), time.Minute))
			})
		}
		wg.Wait()
		s := newPoolEngine(pgtest.OpenPool(t, url), opts)
		t.Cleanup(func() { _ = s.Close() })
		var versions int
		query(t, s, "SELECT count(*) FROM @migrations@", nil, &versions)
		if versions != 1 {
			t.Errorf("%d versions are noted, want 1", versions)
		}
	}
}

// The printed statements make what Migrate makes.
func TestMigrationsPrinted(t *testing.T) {
	t.Parallel()
	opts := &Options{Schema: "printed", Table: "jobs"}
	s := newPoolEngine(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), opts)
	t.Cleanup(func() { _ = s.Close() })
	change(t, s, "DROP SCHEMA IF EXISTS @schema@ CASCADE") // of an earlier run (-count)
	change(t, s, "CREATE SCHEMA @schema@")
	all, err := Migrations(opts)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // They may be run again.
		for _, m := range all {
			for _, text := range m.Statements {
				if strings.Contains(text, "@") {
					t.Errorf("a name is missing in %s", text)
				}
				change(t, s, text)
			}
		}
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var taken bool
	query(t, s, "SELECT printed.jobs_acquire_lock('name', 'worker')", nil, &taken)
	if !taken {
		t.Error("jobs_acquire_lock does not take a free lock")
	}
	refuse(t, s, "name")
}

// otherTables are tables that are not as Migrate makes them, with a part of the error.
var otherTables = []struct{ make, says string }{
	{`CREATE TABLE @table@ (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`, `no column "granted_at timestamp with time zone`},
	{`CREATE TABLE @waiters@ (lock_name text, place bigint, table_number integer)`, `no column "floor bigint not null`},
	{`CREATE VIEW @table@ AS SELECT 1 AS lock_name`, "not an ordinary table"},
}

// changes are statements that change a table, with a part of the error.
var changes = []struct{ make, says string }{
	{"ALTER TABLE @table@ DROP CONSTRAINT distributed_locks_pkey", "PRIMARY KEY (lock_name)"},
	{"ALTER TABLE @table@ DROP CONSTRAINT distributed_locks_pkey, ADD PRIMARY KEY (lock_name) DEFERRABLE", "PRIMARY KEY (lock_name)"},
	{"ALTER TABLE @table@ DROP COLUMN token", "token bigint"},
	{"ALTER TABLE @table@ ADD COLUMN host text", "host text"},
	{"ALTER TABLE @table@ ALTER expires_at TYPE timestamp", "expires_at timestamp with time zone"},
	{"ALTER TABLE @table@ ALTER holder_id TYPE varchar(50)", "holder_id"},
	{`ALTER TABLE @table@ ALTER lock_name TYPE varchar(255) COLLATE "default"`, "lock_name"},
	{"ALTER TABLE @table@ ALTER holder SET DEFAULT 'x'", "holder"},
	{"ALTER TABLE @table@ ALTER holder_id DROP NOT NULL", "holder_id"},
	{"ALTER TABLE @table@ ALTER kept_by SET NOT NULL", "kept_by"},
	{"ALTER TABLE @shares@ DROP COLUMN lim", "lim bigint"},
	{"ALTER TABLE @table@ ADD CONSTRAINT later CHECK (expires_at > acquired_at)", "constraint later"},
	{"CREATE TABLE @schema@.jobs (lock varchar(255) CONSTRAINT of_lock REFERENCES @table@)", "constraint of_lock"},
	{"CREATE UNIQUE INDEX folded ON @table@ (lower(lock_name))", "folded"},
	{"CREATE TRIGGER ignored BEFORE UPDATE ON @table@ FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", "trigger ignored"},
	{"CREATE RULE ignored AS ON DELETE TO @table@ DO INSTEAD NOTHING", "rule ignored"},
	{"ALTER TABLE @table@ ENABLE ROW LEVEL SECURITY", "row security"},
	{"CREATE TABLE @schema@.child () INHERITS (@table@)", "inherit"},
	{"INSERT INTO @migrations@ VALUES (3)", "development version"},
}

// Migrate refuses a table that is another than its own, or was changed, and names the difference.
func TestHandMadeTables(t *testing.T) {
	t.Parallel()
	s := newPoolEngine(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), &Options{Schema: "hand made"})
	t.Cleanup(func() { _ = s.Close() })
	refused := func(text, says string) {
		t.Helper()
		change(t, s, text)
		if err := s.Migrate(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "Options.Table") {
			t.Errorf("Migrate after %s: %v, want it refused, with %q", text, err, says)
		}
		change(t, s, "DROP SCHEMA @schema@ CASCADE")
	}
	change(t, s, "DROP SCHEMA IF EXISTS @schema@ CASCADE") // of an earlier run (-count)
	for _, other := range otherTables {
		change(t, s, "CREATE SCHEMA @schema@")
		refused(other.make, other.says)
	}
	for _, c := range changes {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused(c.make, c.says)
	}
}

// A table whose key has gone since it was migrated grants no new name.
func TestIndexGone(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "index_gone"))
	change(t, s, "ALTER TABLE @table@ DROP CONSTRAINT distributed_locks_pkey")
	if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "holdfast migrate") {
		t.Errorf("Acquire in a table without its key: %+v, %v, want an error", res, err)
	}
}
