//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// handMade are tables that people might have made. Those that Migrate mends
// keep the locks that are in them; of the others its error has the statement that
// mends them.
var handMade = []struct {
	what  string
	make  string // the statements; the row of a live lock named "live" comes after them
	says  string // what the error says, "" if the table is mended
	then  string // what to do about it, run by the test: then it is taken over
	empty bool   // no live lock is put into it
}{
	{what: "as documented", make: `CREATE TABLE @table@ (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL, acquired_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "serial key", make: `CREATE TABLE @table@ (id serial PRIMARY KEY, lock_name varchar(255) NOT NULL, holder_id varchar(255) NOT NULL, acquired_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "key of two columns", make: `CREATE TABLE @table@ (lock_name text, holder_id text, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb,
		PRIMARY KEY (lock_name, holder_id))`},
	{what: "no key, all nullable", make: `CREATE TABLE @table@ (lock_name text, holder_id text, acquired_at timestamptz, expires_at timestamptz, metadata jsonb)`},
	{what: "deferrable key", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY DEFERRABLE, holder_id text NOT NULL, acquired_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "partial index", make: `CREATE TABLE @table@ (lock_name text NOT NULL, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE UNIQUE INDEX ON @table@ (lock_name) WHERE holder_id <> ''`},
	{what: "timestamps to the second", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz(0) NOT NULL,
		expires_at timestamptz(0) NOT NULL, metadata jsonb)`},
	{what: "uuid", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id uuid NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "char and json", make: `CREATE TABLE @table@ (lock_name char(40) PRIMARY KEY, holder_id char(40) NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata json)`},
	{what: "no metadata", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id varchar(50) NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL)`},
	{what: "columns of ours", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb,
		token integer, holder text NOT NULL DEFAULT '00000000-0000-0000-0000-00000000000a', granted_at timestamptz DEFAULT now(), kept_by uuid, awaited_until timestamptz(3), has_waiters text DEFAULT 'no', notify_to uuid)`},
	{what: "case-insensitive", make: `CREATE COLLATION IF NOT EXISTS @schema@.folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE @table@ (lock_name text COLLATE @schema@.folded PRIMARY KEY, holder_id text COLLATE @schema@.folded NOT NULL,
		acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "citext", make: `CREATE EXTENSION IF NOT EXISTS citext SCHEMA @schema@; CREATE TABLE @table@ (lock_name @schema@.citext PRIMARY KEY, holder_id @schema@.citext NOT NULL,
		acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`},
	{what: "an id of its own", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb,
		id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, note text CHECK (note <> ''))`},

	{what: "no key, published", make: `CREATE TABLE @table@ (lock_name text NOT NULL, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE PUBLICATION hand_made_1 FOR TABLE @table@`},
	{what: "an index, published", make: `CREATE TABLE @table@ (lock_name text NOT NULL, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE UNIQUE INDEX ON @table@ (lock_name); CREATE PUBLICATION hand_made_2 FOR TABLE @table@`},
	{what: "invalid index", make: `CREATE TABLE @table@ (lock_name text NOT NULL, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE UNIQUE INDEX broken ON @table@ (lock_name); UPDATE pg_index SET indisvalid = false WHERE indrelid = '@table@'::regclass`},
	{what: "referred to", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE TABLE @schema@.jobs (lock text CONSTRAINT of_lock REFERENCES @table@)`,
		says: "DROP CONSTRAINT of_lock", then: "ALTER TABLE @schema@.jobs DROP CONSTRAINT of_lock"},

	{what: "two rows of a name", make: `CREATE TABLE @table@ (lock_name text NOT NULL, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		INSERT INTO @table@ VALUES ('live', 'x', now(), now() - interval '1 hour')`,
		says: "DELETE FROM", then: "DELETE FROM @table@ AS a USING @table@ AS b WHERE a.lock_name = b.lock_name AND a.ctid <> b.ctid AND (a.expires_at, a.ctid) < (b.expires_at, b.ctid)"},
	{what: "times without zone", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamp NOT NULL, expires_at timestamp NOT NULL, metadata jsonb)`,
		says: "AT TIME ZONE", then: "ALTER TABLE @table@ ALTER acquired_at TYPE timestamptz USING acquired_at AT TIME ZONE 'UTC', ALTER expires_at TYPE timestamptz USING expires_at AT TIME ZONE 'UTC'"},
	{what: "one column more", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb,
		host text NOT NULL)`, says: "ALTER COLUMN host DROP NOT NULL", then: "ALTER TABLE @table@ ALTER COLUMN host DROP NOT NULL", empty: true},
	{what: "trigger", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE FUNCTION @schema@.ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER ignored BEFORE UPDATE ON @table@ FOR EACH ROW EXECUTE FUNCTION @schema@.ignore()`,
		says: "DROP TRIGGER ignored", then: "DROP TRIGGER ignored ON @table@"},
	{what: "rule", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE RULE ignored AS ON DELETE TO @table@ DO INSTEAD NOTHING`, says: "DROP RULE ignored", then: "DROP RULE ignored ON @table@"},
	{what: "row security", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		ALTER TABLE @table@ ENABLE ROW LEVEL SECURITY`, says: "DISABLE ROW LEVEL SECURITY", then: "ALTER TABLE @table@ DISABLE ROW LEVEL SECURITY"},
	{what: "check", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb,
		CONSTRAINT later CHECK (expires_at > acquired_at))`, says: "DROP CONSTRAINT later", then: "ALTER TABLE @table@ DROP CONSTRAINT later"},
	{what: "one lock a holder", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL CONSTRAINT one UNIQUE, acquired_at timestamptz NOT NULL,
		expires_at timestamptz NOT NULL, metadata jsonb)`, says: "DROP CONSTRAINT one", then: "ALTER TABLE @table@ DROP CONSTRAINT one"},
	{what: "names that fold", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE UNIQUE INDEX folded ON @table@ (lower(lock_name))`, says: "DROP INDEX", then: "DROP INDEX @schema@.folded"},
	{what: "inherited", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb);
		CREATE TABLE @schema@.child () INHERITS (@table@)`, says: "NO INHERIT", then: "ALTER TABLE @schema@.child NO INHERIT @table@"},
	{what: "partitioned", make: `CREATE TABLE @table@ (lock_name text, holder_id text NOT NULL, acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)
		PARTITION BY HASH (lock_name)`, says: "not an ordinary table", then: "DROP TABLE @table@", empty: true},
	{what: "view", make: `CREATE VIEW @table@ AS SELECT 1 AS lock_name`, says: "not an ordinary table", then: "DROP VIEW @table@", empty: true},
	{what: "no time", make: `CREATE TABLE @table@ (lock_name text PRIMARY KEY, holder_id text NOT NULL, acquired timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`,
		says: "RENAME COLUMN ... TO acquired_at", then: "ALTER TABLE @table@ RENAME COLUMN acquired TO acquired_at"},
}

// Whatever table people have made, Migrate mends it with the locks in it, or
// refuses it; and in none of them a name ever has two holders.
func TestHandMadeTables(t *testing.T) {
	t.Parallel()
	for i, made := range handMade {
		t.Run(made.what, func(t *testing.T) {
			t.Parallel()
			schema := fmt.Sprintf("hand made %d", i)
			s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"), "pool_max_conns=8"), &Options{Schema: schema})
			t.Cleanup(func() { _ = s.Close() })
			pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL("DROP SCHEMA IF EXISTS @schema@ CASCADE"))
			pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL("CREATE SCHEMA @schema@"))
			t.Cleanup(func() {
				pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL("DROP SCHEMA @schema@ CASCADE"))
			})
			pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL(made.make))
			const holder = "00000000-0000-0000-0000-00000000000a"
			if !made.empty {
				acquired := "acquired_at"
				if strings.Contains(made.make, "acquired timestamptz") {
					acquired = "acquired"
				}
				pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL("SET timezone = 'UTC'; INSERT INTO @table@ (lock_name, holder_id, "+acquired+", expires_at) VALUES ('live', '"+holder+"', now(), now() + interval '1 hour')"))
			}
			err := s.Migrate(t.Context())
			if made.says != "" {
				if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), made.says) {
					t.Fatalf("Migrate: %v, want it refused, with %q", err, made.says)
				}
				if _, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "holdfast migrate") {
					t.Errorf("Acquire in a table that was refused: %v", err)
				}
				pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL(made.then))
				err = s.Migrate(t.Context())
			}
			if err != nil {
				t.Fatalf("Migrate: %v", err)
			}
			if !made.empty {
				if rec := refuse(t, s, "live"); strings.TrimSpace(rec.Holder) != holder {
					t.Errorf("the lock that was there is shown as %+v", rec)
				}
				var done bool
				query(t, s, "SELECT @release_lock@('live'::text, $1::text)", []any{holder}, &done)
				if !done {
					t.Error("the lock that was there cannot be released by its holder")
				}
			}
			if n := doubleGrants(t, s); n > 0 {
				t.Errorf("%d of 20 names had two holders", n)
			}
			var none bool
			query(t, s, "SELECT @acquire_lock@('NAME/0', 'x') AND @acquire_lock@('other', 'X') AND NOT @acquire_lock@('other', 'x')", nil, &none)
			if !none {
				t.Error("names or holders that differ in case only are one, or acquire_lock fails")
			}
		})
	}
}

// doubleGrants has three stores whose sessions are in different time zones take
// names at the same time, and returns how many names more than one of them got.
func doubleGrants(t *testing.T, s *Store) int {
	t.Helper()
	var stores []*Store
	for _, zone := range []string{"UTC", "Asia/Tokyo", "America/Los_Angeles"} {
		other := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"), "pool_max_conns=2", "timezone="+zone), &s.options)
		t.Cleanup(func() { _ = other.Close() })
		stores = append(stores, other)
	}
	twice := 0
	for i := range 20 {
		name := fmt.Sprint("name/", i)
		var granted atomic.Int32
		var group sync.WaitGroup
		for _, other := range stores {
			group.Go(func() {
				res, err := other.Acquire(context.Background(), pgtest.Request(name, time.Hour))
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
				if res.Granted {
					granted.Add(1)
				}
			})
		}
		group.Wait()
		switch n := granted.Load(); {
		case n == 0:
			t.Errorf("nobody got %s", name)
		case n > 1:
			twice++
		}
	}
	return twice
}

// A table whose unique index has gone since it was migrated grants no new name,
// and Migrate makes the index again.
func TestIndexGone(t *testing.T) {
	t.Parallel()
	s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), &Options{Schema: "index gone"})
	t.Cleanup(func() { _ = s.Close() })
	change(t, s, "DROP SCHEMA IF EXISTS @schema@ CASCADE")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	change(t, s, "ALTER TABLE @table@ DROP CONSTRAINT distributed_locks_pkey")
	if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "holdfast migrate") {
		t.Errorf("Acquire in a table without its index: %+v, %v, want an error", res, err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	grant(t, s, "name", time.Minute)
}
