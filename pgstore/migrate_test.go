//go:build unix

package pgstore

import (
	"strings"
	"sync"
	"testing"
	"time"

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
			s := New(pgtest.OpenPool(t, url, parameter), opts)
			if i%2 == 0 {
				s = NewDB(pgtest.OpenSQL(t, url, parameter), opts)
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
		s := New(pgtest.OpenPool(t, url), opts)
		t.Cleanup(func() { _ = s.Close() })
		var versions int
		query(t, s, "SELECT count(*) FROM @migrations@", nil, &versions)
		if versions != 2 {
			t.Errorf("%d versions are noted, want 2", versions)
		}
	}
}

// A table that was made by hand is taken over with the locks in it, and so are
// functions with the names of ours.
func TestMigrateOldTable(t *testing.T) {
	t.Parallel()
	s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), &Options{Schema: "made by hand"})
	t.Cleanup(func() { _ = s.Close() })
	for _, text := range []string{
		"DROP SCHEMA IF EXISTS @schema@ CASCADE", // of an earlier run (-count)
		"CREATE SCHEMA @schema@",
		`CREATE TABLE @table@ (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
			acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`,
		`CREATE FUNCTION @acquire_lock@(name varchar, holder varchar, ttl integer DEFAULT 30, m jsonb DEFAULT '{}') RETURNS integer LANGUAGE sql AS 'SELECT 1'`,
		"INSERT INTO @table@ VALUES ('held', 'old', now(), now() + interval '1 hour', NULL), ('over', 'old', now(), now() - interval '1 hour', NULL)",
	} {
		change(t, s, text)
	}
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if rec := refuse(t, s, "held"); rec.Holder != "old" || rec.Metadata != nil {
		t.Errorf("a lock from before is shown as %+v", rec)
	}
	grant(t, s, "over", time.Minute)
	var done bool
	query(t, s, "SELECT @release_lock@('held', 'old')", nil, &done)
	if !done {
		t.Error("release_lock does not release a lock from before")
	}
	grant(t, s, "held", time.Minute)
}

// The printed statements make what Migrate makes.
func TestMigrationsPrinted(t *testing.T) {
	t.Parallel()
	opts := &Options{Schema: "printed", Table: "jobs"}
	s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), opts)
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
