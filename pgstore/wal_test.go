//go:build unix

package pgstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
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
		"SELECT * FROM @holdfast_acquire@('name', 'other', '', 1000000, 0, 1, '{}', 0, false, NULL, 0)",
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
	change(t, s, "INSERT INTO @waiters@ (lock_name, owner, place, until, floor, tokens, lim) VALUES ('awaited', 'x', 1, now() + interval '1 minute', 0, 1, 0), ('awaited before', 'x', 1, now() - interval '2 hours', 0, 1, 0)")
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
	if got := renew(t, s, held); got[0] != olddriver.Renewed {
		t.Errorf("Renew after a sweep: %v", got)
	}
	if _, token := grantToken(t, s, "expired", time.Minute); token <= last {
		t.Errorf("the token after a sweep is %d, want more than %d", token, last)
	}
	if _, token := grantToken(t, s, "far ahead", time.Minute); token <= ahead {
		t.Errorf("the token after a sweep is %d, want more than %d", token, int64(ahead))
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
	var held []olddriver.AcquireRequest
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
