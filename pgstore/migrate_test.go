//go:build unix

package pgstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Many processes may migrate at once, again and again, and printed statements do the same. What was
// dropped is made again.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Postgres().URL("postgres")
	pgtest.Execute(t, url, `DROP SCHEMA IF EXISTS "at once" CASCADE; DROP SCHEMA IF EXISTS printed CASCADE`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { migrate(t, url, &Options{Schema: "at once"}) })
	}
	all.Wait()
	statements, err := Migrations(&Options{Schema: "printed"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		pgtest.Execute(t, url, "BEGIN; "+strings.Join(statements, ";\n")+"; COMMIT")
	}
	s := openIn(t, "printed", "quote_all_identifiers=on")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	grant(t, s, "name", time.Minute)
	for _, drop := range []string{"TABLE printed.places CASCADE", "TABLE printed.locks CASCADE", "VIEW printed.entries CASCADE"} {
		pgtest.Execute(t, url, "DROP "+drop)
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, call := range storecheck.Calls(s, request(drop, time.Minute)) {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s, when Migrate has made what was dropped (%s): %v", what, drop, err)
			}
		}
	}
	for _, name := range []string{strings.Repeat("x", 64), "$$"} {
		if _, err := Migrations(&Options{Schema: name}); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("the schema %q: %v", name, err)
		}
	}
}

// unfit are statements that make a schema unfit for locks, with a part of the error.
var unfit = []struct{ make, says string }{
	{"GRANT CREATE ON SCHEMA @ TO PUBLIC", "REVOKE CREATE ON SCHEMA"},
	{"CREATE TABLE @.distributed_locks (lock_name text)", "second edition"},
	{"DROP VIEW @.entries CASCADE; DROP TABLE @.locks; CREATE VIEW @.locks AS SELECT 1 AS name", "columns name integer"},
	{"ALTER TABLE @.locks DROP COLUMN token CASCADE", "in the place of"},
	{"ALTER TABLE @.places DROP COLUMN lim CASCADE", "in the place of"},
	{"ALTER TABLE @.locks ADD COLUMN host text", "host text"},
	{"ALTER TABLE @.locks ALTER last_token TYPE integer", "last_token integer"},
	{"ALTER TABLE @.holds SET UNLOGGED", "persistence"},
	{"ALTER TABLE @.places ENABLE ROW LEVEL SECURITY", "row security"},
	{"CREATE TRIGGER t BEFORE INSERT ON @.holds FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", "trigger"},
	{"CREATE OR REPLACE FUNCTION @.edition() RETURNS integer LANGUAGE sql AS 'SELECT 99'", "later version"},
	{older + "ALTER TABLE @.places DROP COLUMN channel CASCADE", "drop it"},
	{older + "DROP FUNCTION @.tell; CREATE FUNCTION @.tell(p_told text[]) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'", "drop the schema"},
}

// older makes a schema that of an older edition.
const older = "CREATE OR REPLACE FUNCTION @.edition() RETURNS integer LANGUAGE sql AS 'SELECT 3'; "

// What Migrate does has not changed without a new edition, which has it done where the last one is.
func TestEdition(t *testing.T) {
	statements, err := Migrations(nil)
	const noted = "13937b9cfce8c04b5024792950b0e05f39e45e4c71964dd2942f8147a767c7cc"
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(statements, "\n")))); err != nil || edition != 9 || sum != noted {
		t.Errorf("the statements of edition %d have the sum %s, %v: raise the edition if they have changed since a release, and note the sum here", edition, sum, err)
	}
}

// Migrate waits shortly for a transaction that reads the tables: all later requests wait behind it.
func TestMigrateBesideReader(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "readers")
	s := openAt(t, url)
	pgtest.Execute(t, url, s.sql(older))
	leaveOpen(t, openAt(t, url), "SELECT count(*) FROM @.entries")
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
	defer cancel()
	var later *driver.RetryError
	if err := s.Migrate(ctx); !errors.As(err, &later) {
		t.Errorf("Migrate beside an open transaction: %v, want a RetryError", err)
	}
}

// A program whose functions are of an earlier edition goes on, and is told to migrate.
func TestEarlierEdition(t *testing.T) {
	s := openIn(t, "earlier")
	pgtest.Execute(t, pgtest.Postgres().URL("postgres"), "DROP SCHEMA IF EXISTS earlier CASCADE")
	var text strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	for _, sql := range []string{"SELECT 1", older} {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		execute(t, s, strings.TrimSuffix(sql, "; "))
		text.Reset()
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		conn, err := s.dialListener()
		if err != nil {
			t.Fatal(err)
		}
		closeConn(conn)
		if strings.Contains(text.String(), "holdfast migrate") != (sql == older) {
			t.Errorf("after %s the log has %q", sql, text.String())
		}
	}
	text.Reset()
	s = New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), &Options{Schema: "earlier", Listen: "postgres://127.0.0.1:1/x"})
	defer s.Notify(func(string, string, int64) {})() // Otherwise it need not listen.
	grant(t, s, "name", time.Minute)
	time.Sleep(time.Second) // It tries twice.
	if err := s.Close(); err != nil || !strings.Contains(text.String(), "cannot listen") {
		t.Errorf("about an address to listen at where nobody is the log has %q", text.String())
	}
}

// Migrate refuses a schema that is unfit, whether there is anything to do or not, and says what
// differs and what to do.
func TestUnfitSchemas(t *testing.T) {
	t.Parallel()
	url := pgtest.Postgres().URL("postgres")
	s := openIn(t, "un fit")
	for _, settled := range []bool{true, false} {
		for _, u := range unfit {
			if !settled && strings.Contains(u.make, "@.edition") {
				continue
			}
			pgtest.Execute(t, url, s.sql("DROP SCHEMA IF EXISTS @ CASCADE"))
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			pgtest.Execute(t, url, s.sql(u.make))
			if !settled {
				pgtest.Execute(t, url, s.sql("DROP FUNCTION @.edition()"))
			}
			if err := s.Migrate(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), u.says) {
				t.Errorf("Migrate after %s: %v, want it refused, with %q", u.make, err, u.says)
			}
		}
	}
}

// hostileDatabase makes a database in which the role of that name may create in the schema public
// and make schemas, and returns its URL and a connection of the role.
func hostileDatabase(t *testing.T, name string) (url string, attacker *pgxpool.Pool) {
	t.Helper()
	admin := pgtest.Postgres().URL("postgres")
	pgtest.Execute(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	pgtest.Execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { pgtest.Execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	pgtest.Execute(t, admin, "DO $$ BEGIN CREATE ROLE "+name+" LOGIN; EXCEPTION WHEN duplicate_object THEN ALTER ROLE "+name+" NOSUPERUSER; END $$")
	url = pgtest.Postgres().URL(name)
	pgtest.Execute(t, url, fmt.Sprintf("GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT CREATE ON DATABASE %[1]s TO %[1]s", name))
	pgtest.Execute(t, url, "CREATE TABLE public.sprung (what text); GRANT INSERT ON public.sprung TO PUBLIC")
	return url, pgtest.OpenPool(t, strings.Replace(url, "postgres@", name+"@", 1))
}

// traps make an operator for each pair of types for which PostgreSQL has none, overloads of the
// functions that this package calls, and types of the same names.
const traps = `DO $traps$
DECLARE
    kinds text[] := '{text,varchar,integer,bigint,smallint,numeric,double precision,interval,timestamptz,jsonb,boolean,name,tid,oid,regclass}';
    functions text[] := '{set_config,current_setting,pg_notify,pg_column_size,starts_with,date_part,unnest,to_regnamespace,to_regprocedure,array_position,
        pg_advisory_xact_lock,aclexplode,acldefault,max,cardinality,acquire_lock,release_lock,acquire,release,renew,look,list,tell,settle,micros,span,described}';
    l text; r text; m text; o text; f text;
BEGIN
    FOREACH l IN ARRAY kinds LOOP
        FOREACH r IN ARRAY kinds LOOP
            EXECUTE format('CREATE FUNCTION public.trap(l %1$s, r %2$s) RETURNS boolean LANGUAGE plpgsql AS
                ''BEGIN INSERT INTO public.sprung VALUES (''''operator %1$s, %2$s''''); RETURN NULL; END''', l, r);
            FOREACH o IN ARRAY '{=,<>,<,>,<=,>=,+,-,*,/,||,->>}'::text[] LOOP
                CONTINUE WHEN to_regoperator(format('pg_catalog.%s(%s,%s)', o, l, r)) IS NOT NULL;
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap)', o, l, r);
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH f IN ARRAY functions LOOP
        FOREACH l IN ARRAY '{text,varchar,integer,bigint,jsonb,text[]}'::text[] LOOP
            FOREACH r IN ARRAY '{"",text,varchar,integer,boolean,text[]}'::text[] LOOP
                FOREACH m IN ARRAY '{"",boolean}'::text[] LOOP
                    CONTINUE WHEN r = '' AND m <> '';
                    EXECUTE format('CREATE OR REPLACE FUNCTION public.%s(%s) RETURNS text LANGUAGE plpgsql AS
                        ''BEGIN INSERT INTO public.sprung VALUES (''''%1$s''''); RETURN NULL; END''', f, concat_ws(', ', l, nullif(r, ''), nullif(m, '')));
                END LOOP;
            END LOOP;
        END LOOP;
    END LOOP;
    CREATE DOMAIN public.text AS pg_catalog.text CHECK (public.trap(1, 1));
    CREATE DOMAIN public.bool AS pg_catalog.bool CHECK (public.trap(1, 1));
END $traps$`

// Nothing that others have made in a schema of the search_path runs with the rights of the users
// that lock.
func TestHostileOperators(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_operators")
	if _, err := attacker.Exec(t.Context(), traps); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"cache_statement", "exec&search_path=public,pg_catalog"} {
		s := New(pgtest.OpenPool(t, url, "default_query_exec_mode="+mode), nil)
		t.Cleanup(func() { _ = s.Close() })
		for range 2 {
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		req, token := grant(t, s, "name", time.Minute)
		refuse(t, s, "name")
		first, second := wait(t, s, "name", time.Minute), wait(t, s, "name", time.Minute)
		state(t, s, req)
		state(t, s, second)
		for _, err := range s.List(t.Context(), "n") {
			if err != nil {
				t.Error(err)
			}
		}
		tx := leaveOpen(t, s, "SELECT 1")
		if err := s.VerifyTx(t.Context(), tx, heldLock{"name", token, nil}); err != nil {
			t.Error(err)
		}
		_ = tx.Rollback(t.Context())
		release(t, s, req)
		if ended, err := s.Break(t.Context(), "name", 0); err != nil || len(ended) != 1 {
			t.Error(ended, err)
		}
		release(t, s, first)
		release(t, s, second)
		value[int64](t, s, "SELECT @.sweep_locks()")
		value[bool](t, s, "SELECT @.acquire_lock('other', 'worker') AND @.extend_lock('other', 'worker') AND @.release_lock('other', 'worker')")
		if sprung := value[string](t, s, "SELECT coalesce(string_agg(DISTINCT what, '; '), '') FROM public.sprung"); sprung != "" {
			t.Errorf("%s: what others have made is run: %s", mode, sprung)
		}
	}
}

// Migrate runs no code that another user has put in the place of the schema, its tables and its
// functions, and its error names that object. For a user without CREATE on the database, the schema
// of any owner is accepted.
func TestHostileOwner(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_owner")
	s := New(pgtest.OpenPool(t, url), nil)
	t.Cleanup(func() { _ = s.Close() })
	const spring = `CREATE FUNCTION holdfast.edition() RETURNS integer LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO public.sprung VALUES ('edition'); RETURN 3; END $$`
	for what, texts := range map[string][]string{
		"schema":   {"CREATE SCHEMA holdfast", spring},
		"function": {"ADMIN CREATE SCHEMA holdfast; GRANT CREATE ON SCHEMA holdfast TO hostile_owner", spring},
		"operator": {
			"ADMIN CREATE SCHEMA holdfast; GRANT CREATE ON SCHEMA holdfast TO hostile_owner",
			"CREATE FUNCTION public.append(text[], text) RETURNS text[] LANGUAGE sql AS 'SELECT $1'",
			"CREATE OPERATOR holdfast.|| (LEFTARG = text[], RIGHTARG = text, FUNCTION = public.append)",
		},
		"table": {"ADMIN CREATE SCHEMA holdfast; GRANT CREATE ON SCHEMA holdfast TO hostile_owner", "CREATE TABLE holdfast.places (name text)"},
	} {
		for _, text := range texts {
			if rest, admin := strings.CutPrefix(text, "ADMIN "); admin {
				pgtest.Execute(t, url, rest)
			} else if _, err := attacker.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Migrate(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "belongs to hostile_owner") {
			t.Errorf("Migrate into the %s of somebody else: %v", what, err)
		}
		if n := value[int64](t, s, "SELECT count(*) FROM public.sprung"); n != 0 {
			t.Error("Migrate has run what somebody else had made")
		}
		pgtest.Execute(t, url, "DROP SCHEMA holdfast CASCADE")
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate, when all that is gone: %v", err)
	}
	pgtest.Execute(t, url, "GRANT USAGE ON SCHEMA holdfast TO PUBLIC; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO hostile_owner")
	pgtest.Execute(t, url, "REVOKE CREATE ON DATABASE hostile_owner FROM hostile_owner")
	user := New(attacker, nil)
	t.Cleanup(func() { _ = user.Close() })
	if err := user.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate with nothing to do, by a user that may not: %v", err)
	}
	req, _ := grant(t, user, "name", time.Minute)
	release(t, user, req)
	none := New(attacker, &Options{Schema: "none"})
	t.Cleanup(func() { _ = none.Close() })
	if err := none.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), `CREATE SCHEMA "none" AUTHORIZATION`) {
		t.Errorf("Migrate into no schema, by a user that may not: %v", err)
	}
}

func TestURL(t *testing.T) {
	for _, bad := range []string{"postgres://x/?schema=a%40b", "postgres://x/?table=locks", "postgres://x/?listen_url=%3A%3A", "postgres://x/?misspelled=1", "postgres://x/?hostaddr=127.0.0.1", "postgres:opaque"} {
		storecheck.Opens(t, bad, false)
	}
	u, _ := url.Parse("postgres://user:SecretWord@127.0.0.1:1/x?schema=a&listen_url=" + url.QueryEscape("postgres://127.0.0.1:2/x"))
	opened, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*Store)
	if got := s.pool.Config().ConnConfig.ConnectTimeout; got != 10*time.Second || s.direct.Port != 2 || s.schema != "a" {
		t.Errorf("%v, %+v", got, s)
	}
	fails(t, s, driver.ErrNotApplied, "127.0.0.1:1", "Acquire", "Lookup")
	if err := errors.Join(opened.Close(), opened.Close()); err != nil {
		t.Error(err)
	}
	fails(t, s, driver.ErrClosed, "closed", "Acquire", "Renew", "Release", "Lookup", "Break", "List")
	fails(t, New(nil, nil), driver.ErrInvalid, "nil", "Acquire", "Renew", "Release", "Lookup", "Break", "List")
}
