//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// hostileDatabase makes a database in which the role attacker may create in the
// schema public, as everybody could before PostgreSQL 15, and returns its URL and
// a connection of the attacker.
func hostileDatabase(t *testing.T, name string) (url string, attacker *pgxpool.Pool) {
	t.Helper()
	admin := pgtest.Postgres().URL("postgres")
	pgtest.Execute(t, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	pgtest.Execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { pgtest.Execute(t, admin, "DROP DATABASE "+name+" WITH (FORCE)") })
	pgtest.Execute(t, admin, "DO $$ BEGIN CREATE ROLE "+name+" LOGIN; EXCEPTION WHEN duplicate_object THEN ALTER ROLE "+name+" NOSUPERUSER; END $$")
	url = pgtest.Postgres().URL(name)
	pgtest.Execute(t, url, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	pgtest.Execute(t, url, "CREATE TABLE public.sprung (what text)")
	pgtest.Execute(t, url, "GRANT INSERT ON public.sprung TO PUBLIC")
	attacker = pgtest.OpenPool(t, strings.Replace(url, "postgres@", name+"@", 1))
	return url, attacker
}

// setTraps has the attacker make an operator for each pair of types for which
// PostgreSQL has none, and overloads of the functions that this package calls.
func setTraps(t *testing.T, attacker *pgxpool.Pool) {
	t.Helper()
	const traps = `DO $traps$
DECLARE
    kinds text[] := '{text,varchar,integer,bigint,smallint,numeric,double precision,interval,timestamptz,jsonb,boolean,name,tid,oid,regclass}';
    functions text[] := '{set_config,current_setting,pg_notify,pg_column_size,starts_with,date_part,unnest,to_regnamespace,to_regclass,to_jsonb,nextval,setval,
        pg_advisory_xact_lock,pg_try_advisory_lock,pg_advisory_unlock,pg_try_advisory_xact_lock,pg_try_advisory_lock_shared,pg_advisory_unlock_shared,
        pg_blocking_pids,pg_terminate_backend,aclexplode,acldefault,max,cardinality}';
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
        FOREACH l IN ARRAY '{text,varchar,integer,bigint,jsonb,regclass}'::text[] LOOP
            FOREACH r IN ARRAY '{"",text,varchar,integer,boolean}'::text[] LOOP
                FOREACH m IN ARRAY '{"",boolean}'::text[] LOOP
                    CONTINUE WHEN r = '' AND m <> '';
                    EXECUTE format('CREATE OR REPLACE FUNCTION public.%s(%s) RETURNS text LANGUAGE plpgsql AS
                        ''BEGIN INSERT INTO public.sprung VALUES (''''%1$s''''); RETURN NULL; END''', f, concat_ws(', ', l, nullif(r, ''), nullif(m, '')));
                END LOOP;
            END LOOP;
        END LOOP;
    END LOOP;
END $traps$`
	if _, err := attacker.Exec(t.Context(), traps); err != nil {
		t.Fatal(err)
	}
}

// Nothing that others have made in a schema of the search_path runs with the
// rights of the users that lock.
func TestHostileOperators(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_operators")
	setTraps(t, attacker)
	pool := pgtest.OpenPool(t, url)
	s := newPoolEngine(pool, nil)
	t.Cleanup(func() { _ = s.Close() })
	sprung := func(after string) {
		t.Helper()
		if traps := pgtest.QueryValue[string](t, pool, "SELECT coalesce(string_agg(DISTINCT what, '; '), '') FROM public.sprung"); traps != "" {
			t.Errorf("%s runs what others have made: %s", after, traps)
		}
		pgtest.Execute(t, url, "TRUNCATE public.sprung")
	}
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		sprung(what)
	}
	step("Migrate", s.Migrate(t.Context()))
	step("Migrate again", s.Migrate(t.Context()))
	var err error
	for range 2 { // The second time, what was seen of the name chooses other statements.
		req := pgtest.Request("name", time.Minute)
		_, err = s.Acquire(t.Context(), req)
		step("Acquire", err)
		for range 2 {
			_, err = s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
			step("Acquire of a held name", err)
		}
		_, err = s.Renew(t.Context(), pgtest.Renewals(req))
		step("Renew", err)
		_, _, err = s.Lookup(t.Context(), "name")
		step("Lookup", err)
		for _, err := range s.List(t.Context(), "n") {
			step("List", err)
		}
		var last olddriver.AcquireRequest
		for range 2 {
			last = pgtest.Request("name", time.Minute)
			last.Queue = time.Minute
			_, err = s.Acquire(t.Context(), last)
			step("Acquire with Queue", err)
		}
		_, _, err = s.Lookup(t.Context(), "name")
		step("Lookup of a queue", err)
		_, err = s.Renew(t.Context(), pgtest.Renewals(last))
		step("Renew of a place", err)
		_, err = s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: last.Owner})
		step("Release of a place", err)
		_, err = s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner})
		step("Release", err)
		s.notifyWaiters("name")
		_, _, err = s.Break(t.Context(), olddriver.BreakRequest{Name: "name"})
		step("Break of what was admitted", err)
	}
	req := pgtest.Request("name", time.Minute)
	_, err = s.Acquire(t.Context(), req)
	step("Acquire", err)
	release, again := &rowChange{name: "name", owner: req.Owner}, &rowChange{name: "name", owner: req.Owner, acquire: &req, metadata: "{}"}
	step("Release of many", s.changeTogether(t.Context(), []*rowChange{release}, nil))
	step("Acquire of many", s.changeTogether(t.Context(), nil, []*rowChange{again}))
	step("Release and Acquire of many", s.changeTogether(t.Context(), []*rowChange{release}, []*rowChange{again}))
	if !release.applied || !again.applied {
		t.Errorf("Release and Acquire of many: %+v, %+v", release, again)
	}
	_, err = s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner, Keep: time.Minute})
	step("Release with Keep", err)
	_, _, err = s.Break(t.Context(), olddriver.BreakRequest{Name: "name"})
	step("Break", err)
	s.sweepRows()
	sprung("sweep")
	change(t, s, s.queries.notify, `{"name"}`)
	sprung("notify")
	for _, call := range []string{
		"SELECT acquire_lock('other'::text, 'worker-7'::text, 30::integer)", "SELECT acquire_lock_token('other'::text, 'worker-7'::text, 30::double precision)",
		"SELECT extend_lock('other'::text, 'worker-7'::text, 30::integer)", "SELECT release_lock('other'::text, 'worker-7'::text)", "SELECT sweep_locks()",
	} {
		_, err := pool.Exec(t.Context(), call)
		step(call, err)
	}

	a := advisory.New(pool, &advisory.Options{TokenSequence: "public.tokens"})
	t.Cleanup(func() { _ = a.Close() })
	step("advisory Migrate", a.Migrate(t.Context()))
	req = pgtest.Request("name", time.Minute)
	req.Floor = time.Now().Add(time.Hour).UnixMicro()
	_, err = a.Old().Acquire(t.Context(), req)
	step("advisory Acquire", err)
	_, err = a.Old().Renew(t.Context(), pgtest.Renewals(req))
	step("advisory Renew", err)
	for _, err := range a.Locks(t.Context()) {
		step("Locks", err)
	}
	waiter := pgtest.Request("name", time.Minute)
	waiter.Queue = time.Minute
	if res, err := a.Old().Acquire(t.Context(), waiter); err != nil || !res.Queued {
		t.Errorf("advisory Acquire by a waiter: %+v, %v, want it queued", res, err)
	}
	sprung("advisory Acquire by a waiter")
	_, err = a.Old().Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner})
	step("advisory Release", err)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	step("LockTx", advisory.LockTx(t.Context(), tx, "name", nil))
	_, err = advisory.TryLockTx(t.Context(), tx, "name", nil)
	step("TryLockTx", err)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

// An overload that others have made is no better match than the functions of this
// package, for calls with casts as they are documented; and Examine names it.
func TestHostileOverloads(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_overloads")
	s := newPoolEngine(pgtest.OpenPool(t, url), nil)
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, name := range []string{"acquire_lock", "acquire_lock_token", "acquire_slot", "extend_lock", "release_lock", "sweep_locks"} {
		for _, args := range []string{"", "text, text", "text, text, integer", "text, text, integer, jsonb", "text, text, numeric", "varchar, varchar",
			"varchar, varchar, integer", "text, text, smallint", "text, text, bigint", "text, text, text", "text, text, double precision",
			"text, text, smallint, jsonb", "text, text, bigint, jsonb", "text, text, numeric, jsonb", "text, text, text, jsonb", "VARIADIC text[]"} {
			if _, err := attacker.Exec(t.Context(), fmt.Sprintf(
				"CREATE FUNCTION public.%s(%s) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN ALTER ROLE hostile_overloads SUPERUSER; RETURN true; END'", name, args)); err == nil {
				made++
			}
		}
	}
	if made < 20 {
		t.Fatalf("%d overloads were made: the test tests nothing", made)
	}
	for _, call := range []string{
		"acquire_lock('name'::text, 'worker-7'::text)", "acquire_lock('name'::text, 'worker-7'::text, 30::integer)",
		"acquire_lock('name'::text, 'worker-7'::text, 30::integer, '{\"job\": \"import\"}'::jsonb)", "acquire_lock('name'::text, 'worker-7'::text, 0.5::double precision)",
		"acquire_lock_token('name'::text, 'worker-7'::text, 30::integer)", "extend_lock('name'::text, 'worker-7'::text, 30::integer)",
		"release_lock('name'::text, 'worker-7'::text)", "sweep_locks()",
	} {
		if err := s.execQuery(t.Context(), "SELECT "+call); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	if pgtest.QueryValue[bool](t, attacker, "SELECT rolsuper FROM pg_roles WHERE rolname = 'hostile_overloads'") {
		t.Error("a documented call has run an overload of somebody else's")
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate beside overloads of somebody else's: %v", err)
	}
}

// Migrate runs nothing of what somebody else has put in the place of the table and
// the functions, and says what it found.
func TestHostileOwner(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_owner")
	s := newPoolEngine(pgtest.OpenPool(t, url), nil)
	t.Cleanup(func() { _ = s.Close() })
	const spring = `CREATE OR REPLACE FUNCTION public.spring() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO public.sprung VALUES (''a trigger''); RETURN NEW; END'`
	const table = `CREATE TABLE public.%s (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
		acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb, version integer, applied_at timestamptz DEFAULT now())`
	for what, texts := range map[string][]string{
		"table":      {fmt.Sprintf(table, "distributed_locks")},
		"migrations": {"CREATE TABLE public.distributed_locks_migrations (version integer PRIMARY KEY, applied_at timestamptz)", "CREATE TRIGGER t BEFORE INSERT ON public.distributed_locks_migrations FOR EACH ROW EXECUTE FUNCTION public.spring()"},
		"a view of migrations": {`CREATE FUNCTION public.peek() RETURNS integer LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.sprung VALUES (''a view''); RETURN 1; END'`,
			"CREATE VIEW public.distributed_locks_migrations AS SELECT public.peek() AS version"},
		"waiters": {"CREATE TABLE public.distributed_locks_waiters (lock_name text, owner text, place bigint, until timestamptz, holder text, metadata jsonb," +
			" floor bigint, tokens bigint, notify_to text)",
			"CREATE TRIGGER t BEFORE INSERT ON public.distributed_locks_waiters FOR EACH ROW EXECUTE FUNCTION public.spring()"},
		"shares": {"CREATE TABLE public.distributed_locks_shares (lock_name text, owner text, lim bigint, token bigint, last_token bigint," +
			" acquired_at timestamptz, expires_at timestamptz, is_kept boolean, holder text, metadata jsonb, notify_to text)",
			"CREATE TRIGGER t BEFORE INSERT ON public.distributed_locks_shares FOR EACH ROW EXECUTE FUNCTION public.spring()"},
		"function": {`CREATE FUNCTION public.holdfast_acquire(p_name text, p_owner text, p_holder text, p_ttl bigint, p_floor bigint, p_tokens bigint, p_metadata jsonb,
			p_queue bigint, p_claim boolean, p_notify_to text, p_limit bigint)
			RETURNS integer LANGUAGE sql AS 'SELECT 1'`},
	} {
		t.Run(what, func(t *testing.T) {
			for _, text := range append([]string{spring}, texts...) {
				if _, err := attacker.Exec(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Migrate(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "mend it") {
				t.Errorf("Migrate: %v, want it refused, and how to mend it", err)
			}
			if n := pgtest.QueryValue[int](t, pgtest.OpenPool(t, url), "SELECT count(*) FROM public.sprung"); n != 0 {
				t.Error("Migrate has run what somebody else had made")
			}
			pgtest.Execute(t, url, "TRUNCATE public.sprung; DROP OWNED BY hostile_owner CASCADE")
			pgtest.Execute(t, url, "DROP TABLE IF EXISTS public.distributed_locks, public.distributed_locks_migrations CASCADE")
			pgtest.Execute(t, url, "DO $$ DECLARE f regprocedure; BEGIN FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP; END $$")
		})
	}
	if err := s.Migrate(context.Background()); err != nil {
		t.Errorf("Migrate, when all that is gone: %v", err)
	}
}

// A sequence that somebody else can set back, or that does not rise, gives no
// tokens.
func TestHostileSequence(t *testing.T) {
	t.Parallel()
	url, attacker := hostileDatabase(t, "hostile_sequence")
	s := advisory.New(pgtest.OpenPool(t, url), &advisory.Options{TokenSequence: "public.tokens"})
	t.Cleanup(func() { _ = s.Close() })
	if _, err := attacker.Exec(t.Context(), "CREATE SEQUENCE public.tokens"); err != nil {
		t.Fatal(err)
	}
	refused := func(says string) {
		t.Helper()
		if err := s.Migrate(t.Context()); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("Migrate: %v, want it refused, with %q", err, says)
		}
	}
	refused("OWNER TO")
	pgtest.Execute(t, url, "ALTER SEQUENCE public.tokens OWNER TO postgres")
	pgtest.Execute(t, url, "ALTER SEQUENCE public.tokens CYCLE")
	refused("NO CYCLE")
	pgtest.Execute(t, url, "DROP SEQUENCE public.tokens; CREATE TABLE public.tokens (a integer)")
	refused("name another")
	pgtest.Execute(t, url, "DROP TABLE public.tokens")
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate: %v", err)
		}
	}
	if res, err := s.Old().Acquire(t.Context(), pgtest.Request("name", time.Minute)); err != nil || !res.Granted {
		t.Errorf("Acquire: %+v, %v, want it granted", res, err)
	}
}

// Programs may call Migrate when they start, as users who could change nothing,
// and as superusers, where a role of its own has migrated.
func TestMigrationRole(t *testing.T) {
	t.Parallel()
	url, migrator := hostileDatabase(t, "migration_role")
	pgtest.Execute(t, url, "DO $$ BEGIN CREATE ROLE migration_app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	opts := &Options{Schema: "locks"}
	for _, text := range []string{"CREATE SCHEMA locks", "GRANT CREATE, USAGE ON SCHEMA locks TO migration_role", "GRANT USAGE ON SCHEMA locks TO migration_app"} {
		pgtest.Execute(t, url, text)
	}
	m := newPoolEngine(migrator, opts)
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pgtest.Execute(t, url, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.distributed_locks TO migration_app")
	app := newPoolEngine(pgtest.OpenPool(t, strings.Replace(url, "postgres@", "migration_app@", 1)), opts)
	root := newPoolEngine(pgtest.OpenPool(t, url), opts)
	t.Cleanup(func() { _, _ = app.Close(), root.Close() })
	for what, s := range map[string]*engine{"app": app, "superuser": root} {
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate with nothing to do, as %s: %v", what, err)
		}
		release(t, s, grant(t, s, what, time.Minute))
	}
	refused := func(why string) {
		t.Helper()
		err := root.Migrate(t.Context())
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "migrate as migration_role") || strings.Contains(err.Error(), "OWNER TO") {
			t.Errorf("Migrate as superuser, %s: %v, want it to name the owner", why, err)
		}
	}
	pgtest.Execute(t, url, "DELETE FROM locks.distributed_locks_migrations WHERE version = 1")
	refused("with something to do")
	pgtest.Execute(t, url, "INSERT INTO locks.distributed_locks_migrations VALUES (1)")
	pgtest.Execute(t, url, "REVOKE CREATE ON SCHEMA locks FROM migration_role")
	if err := root.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate, when the migration role may no longer create: %v", err)
	}
	pgtest.Execute(t, url, "GRANT CREATE ON SCHEMA locks TO PUBLIC")
	refused("in a schema in which everybody may create")
	pgtest.Execute(t, url, "DROP OWNED BY migration_app")
}
