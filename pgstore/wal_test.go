//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A refused attempt writes nothing: no log, no number of a transaction.
func TestRefusedAttemptWritesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=1")
	grant(t, s, "name", time.Hour)
	refuse(t, s, "name")
	conn, err := s.pool.acquireConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.releaseConn()
	run := func(text string, row func(scanner) error) {
		t.Helper()
		if err := conn.query(t.Context(), true, s.expandSQL(text), nil, row); err != nil {
			t.Fatal(err)
		}
	}
	none := func(scanner) error { return nil }
	for _, attempt := range []string{
		"SELECT * FROM @holdfast_acquire@('name', 'other', '', 1000000, 0, 1, '{}', '', false, 0, false, true, NULL, 0, 0)",
		strings.NewReplacer("$1", "'name'", "$2", "'other'", "$3", "''", "$4", "1000000", "$5", "0", "$6", "'{}'", "$7", "0").Replace(acquireFreeSQL),
		strings.NewReplacer("$1", "'name'", "$2", "'other'").Replace(selectHolderSQL),
	} {
		var plan strings.Builder
		run("BEGIN", none)
		run("EXPLAIN (ANALYZE, WAL, BUFFERS OFF, COSTS OFF) "+attempt, func(scan scanner) error {
			var line string
			defer func() { plan.WriteString(line + "\n") }()
			return scan(&line)
		})
		var unassigned bool
		run("SELECT pg_current_xact_id_if_assigned() IS NULL", func(scan scanner) error { return scan(&unassigned) })
		run("ROLLBACK", none)
		if strings.Contains(plan.String(), "WAL") || !unassigned {
			t.Errorf("a refused attempt writes to the log, or has the number of a transaction:\n%s", plan.String())
		}
	}
}

// counter counts the statements of locks that pgx sends. A pool pings besides.
type counter struct {
	atomic.Int64
	args atomic.Value // of the last one
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "holdfast_") || strings.Contains(data.SQL, DefaultTable) {
		c.Add(1)
		c.args.Store(data.Args)
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// traced returns a store whose statements are counted.
func traced(t *testing.T, opts *Options) (*Store, *counter) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	sent := &counter{}
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if opts.Schema == "" {
		opts.Schema = newSchema(t)
	}
	s := New(pool, opts)
	t.Cleanup(func() { _ = s.Close() })
	return s, sent
}

// Each verb is one statement, and so are a thousand renewals.
func TestOneStatement(t *testing.T) {
	t.Parallel()
	s, sent := traced(t, &Options{})
	const holds = 1000
	var reqs []driver.AcquireRequest
	for i := range holds {
		reqs = append(reqs, grant(t, s, fmt.Sprint("hold/", i), time.Minute))
	}
	if n := sent.Swap(0); n != holds {
		t.Errorf("%d acquisitions were %d statements", holds, n)
	}
	outcomes := renew(t, s, reqs...)
	for i, outcome := range outcomes {
		if outcome != driver.Renewed {
			t.Fatalf("the outcome of the renewal of %q is %d", reqs[i].Name, outcome)
		}
	}
	if n := sent.Swap(0); n != 1 {
		t.Errorf("%d renewals were %d statements, want 1", holds, n)
	}
	release(t, s, reqs[0])
	grant(t, s, reqs[0].Name, time.Minute)
	refuse(t, s, reqs[0].Name)
	if n := sent.Swap(0); n != 3 {
		t.Errorf("a release, an acquisition and a refused one were %d statements, want 3", n)
	}
	for what, call := range calls(s, "name") {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := sent.Swap(0); n != 1 {
			t.Errorf("%s was %d statements, want 1", what, n)
		}
	}
}

// What the options say of commits is what each statement asks of the server.
func TestSynchronousCommit(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=1")
	held := grant(t, s, "held", time.Hour)
	first := queueUp(t, s, "held", time.Hour).Owner
	conn, err := s.pool.acquireConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.releaseConn()
	level := func(text string, args ...any) (level string) {
		t.Helper()
		for _, step := range []struct {
			text string
			args []any
		}{{"BEGIN", nil}, {text, args}, {"SELECT current_setting('synchronous_commit')", nil}, {"ROLLBACK", nil}} {
			if err := conn.query(t.Context(), true, step.text, step.args, func(scan scanner) error {
				if step.text == text {
					return nil
				}
				return scan(&level)
			}); err != nil {
				t.Fatal(err)
			}
		}
		return level
	}
	if got := level(s.queries.acquire, "name", "owner", "", int64(1e6), int64(0), int64(1), "{}", "", false, int64(0), false, true, "", int64(0), int64(0)); got != "on" {
		t.Errorf("an acquisition that leaves it to the server commits with %q", got)
	}
	for what, got := range map[string]string{
		"acquire": level(s.queries.acquire, "name", "owner", "", int64(1e6), int64(0), int64(1), "{}", "remote_write", false, int64(0), false, true, "", int64(0), int64(0)),
		"renew":   level(s.queries.renew, `{"name"}`, `{"owner"}`, "{1}", "{1}", "remote_write", false),
		"release": level(s.queries.release, "name", "owner", int64(0), "remote_write", true, false),
		"break":   level(s.queries.breakName, "held", "remote_write", int64(0), false),
	} {
		if got != "remote_write" {
			t.Errorf("%s with remote_write commits with %q", what, got)
		}
	}
	for what, c := range map[string]struct {
		got, want string
	}{
		"a place":                           {level(s.queries.acquire, "held", "owner", "", int64(1e6), int64(0), int64(1), "{}", "remote_write", false, int64(1e6), false, true, "", int64(0), int64(0)), "off"},
		"a refresh":                         {level(s.queries.refresh, `{"held"}`, `{"`+first+`"}`, "{1}", "remote_write", false), "off"},
		"the release of a place":            {level(s.queries.release, "held", first, int64(0), "remote_write", false, false), "off"},
		"a release that admits":             {level(s.queries.release, "held", held.Owner, int64(0), "remote_write", false, false), "remote_write"},
		"a release that admits, by default": {level(s.queries.release, "held", held.Owner, int64(0), "", false, false), "on"},
		"a break that admits":               {level(s.queries.breakName, "held", "remote_write", int64(0), false), "remote_write"},
	} {
		if c.got != c.want {
			t.Errorf("%s commits with %q, want %q", what, c.got, c.want)
		}
	}
	if err := conn.query(t.Context(), true, s.expandSQL("UPDATE @table@ SET expires_at = now() WHERE lock_name = 'held'"), nil, func(scanner) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]string{
		"a refresh that admits":   level(s.queries.refresh, `{"held"}`, `{"`+first+`"}`, "{1}", "remote_write", false),
		"a claim that is granted": level(s.queries.acquire, "held", first, "", int64(1e6), int64(0), int64(1), "{}", "remote_write", false, int64(1e6), true, true, "", int64(0), int64(0)),
	} {
		if got != "remote_write" {
			t.Errorf("%s commits with %q", what, got)
		}
	}
}

// What is asked of the server is what the options say.
func TestCommitOptions(t *testing.T) {
	t.Parallel()
	s, sent := traced(t, &Options{SynchronousCommit: "local", DurableRelease: true})
	asked := func(what, level string) {
		t.Helper()
		if args := sent.args.Load().([]any); !slices.Contains(args, any(level)) {
			t.Errorf("%s with the arguments %v, want %q among them", what, args, level)
		}
	}
	req := grant(t, s, "name", time.Minute)
	asked("Acquire", "local")
	renew(t, s, req)
	asked("Renew", "local")
	release(t, s, req)
	asked("Release", "local")
	grant(t, s, "name", time.Minute)
	asked("Acquire of what is known to be free", "local")
	if _, _, err := s.Break(t.Context(), driver.BreakRequest{Name: "name"}); err != nil {
		t.Fatal(err)
	}
	asked("Break", "local")
}

// Names that are used once and never again do not fill the table, and tokens go
// on rising where rows were deleted.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := open(t)
	ahead := time.Now().Add(driver.MaxLead / 2).UnixMicro()
	for _, name := range []string{"released", "expired", "awaited", "awaited before"} {
		release(t, s, grant(t, s, name, time.Minute))
	}
	req := pgtest.Request("far ahead", time.Minute)
	req.Floor = ahead
	if _, err := s.Acquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	release(t, s, req)
	held := grant(t, s, "held", time.Minute)
	_, last := grantToken(t, s, "expired", time.Minute)
	change(t, s, "UPDATE @table@ SET expires_at = now() - interval '2 hours' WHERE lock_name = 'expired'")
	change(t, s, "UPDATE @table@ SET acquired_at = now() - interval '2 hours', granted_at = now() - interval '2 hours'")
	change(t, s, "UPDATE @table@ SET has_waiters = true WHERE lock_name LIKE 'awaited%'")
	change(t, s, "INSERT INTO @waiters@ (lock_name, owner, until, floor, tokens) VALUES ('awaited', 'x', now() + interval '1 minute', 0, 1), ('awaited before', 'x', now() - interval '2 hours', 0, 1)")
	release(t, s, grant(t, s, "just now", time.Minute))
	s.sweepRows()
	left := map[string]bool{}
	if err := s.queryRows(t.Context(), s.expandSQL("SELECT lock_name FROM @table@"), nil, func() {}, func(scan scanner) error {
		var name string
		err := scan(&name)
		left[name] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"far ahead", "held", "just now", "awaited"} {
		if !left[name] {
			t.Errorf("the row of the lock %q was deleted", name)
		}
	}
	for _, name := range []string{"released", "expired", "awaited before"} {
		if left[name] {
			t.Errorf("the row of the lock %q is still there", name)
		}
	}
	if got := renew(t, s, held); got[0] != driver.Renewed {
		t.Errorf("Renew after a sweep: %v", got)
	}
	if _, token := grantToken(t, s, "expired", time.Minute); token <= last {
		t.Errorf("the token after a sweep is %d, want more than %d", token, last)
	}
	if _, token := grantToken(t, s, "far ahead", time.Minute); token <= ahead {
		t.Errorf("the token after a sweep is %d, want more than %d", token, int64(ahead))
	}
}

// The table does not grow with use: updates stay within their pages. The server is the test's own,
// because a transaction in any of its databases, an autovacuum's too, keeps old rows from being
// cleared.
func TestTableStaysSmall(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "autovacuum=off")
	migrated(t, server.URL("postgres"), nil)
	s := openAt(t, server.URL("postgres"), "pool_max_conns=1", "synchronous_commit=off")
	for i := range 3000 {
		release(t, s, grant(t, s, fmt.Sprint("name/", i%20), time.Minute))
	}
	var size int
	query(t, s, "SELECT pg_total_relation_size($1::text::regclass)", []any{s.expandSQL("@table@")}, &size)
	if size > 256<<10 {
		t.Errorf("the table has %d bytes after 3000 pairs on 20 names", size)
	}
}

// Pages have room for an update of each of their rows, also while a transaction
// anywhere in the database keeps what was there before from being cleared.
func TestUpdatesStayWithinPages(t *testing.T) {
	t.Parallel()
	s := open(t, "pool_max_conns=1", "synchronous_commit=off")
	updates := func() (hot, all int64) {
		t.Helper()
		change(t, s, "SELECT pg_stat_force_next_flush()")
		query(t, s, "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relid = $1::text::regclass",
			[]any{s.expandSQL("@table@")}, &hot, &all)
		return hot, all
	}
	hotBefore, before := updates()
	const names = 500
	var held []driver.AcquireRequest
	for i := range names {
		held = append(held, grant(t, s, fmt.Sprint("name/", i), time.Minute))
	}
	conn, err := pgx.Connect(t.Context(), pgtest.Postgres().URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		t.Fatal(err)
	}
	for _, req := range held {
		release(t, s, req)
	}
	hot, all := updates()
	if hot, all := hot-hotBefore, all-before; hot != all || all < names {
		t.Errorf("of %d updates %d stayed within their pages, want all, and %d of them", all, hot, names)
	}
}
