//go:build unix

package pgstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A lock passes to a client that waits in another process at once: directly, and around a pooler.
// With a pooler alone it passes when the waiter looks.
func TestHandOver(t *testing.T) {
	t.Parallel()
	direct, pooled := pgtest.Postgres().URL("postgres"), pgtest.PgBouncer().URL("postgres")
	for what, tt := range map[string]struct {
		url, listen string
		within      time.Duration
	}{
		"direct": {direct, "", 100 * time.Millisecond}, "around": {pooled, direct, 100 * time.Millisecond}, "pooler": {pooled, "", 6 * time.Second},
	} {
		schema := newSchema(t)
		var clients []*holdfast.Client
		spare := int64(0)
		for range 2 {
			s := New(pgtest.OpenPool(t, tt.url), &Options{Schema: schema, Listen: tt.listen})
			clients = append(clients, holdfast.New(s, nil))
			t.Cleanup(func() { _, _ = clients[len(clients)-1].Close(), s.Close() })
		}
		var times []time.Duration
		for i := range 5 {
			lock, err := clients[i%2].Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatal(err)
			}
			released := make(chan time.Time, 1)
			go func() {
				for rec, err := clients[i%2].Lookup(t.Context(), "name"); err == nil && (len(rec) == 0 || rec[0].Waiting == 0); {
					time.Sleep(5 * time.Millisecond)
					rec, err = clients[i%2].Lookup(t.Context(), "name")
				}
				released <- time.Now()
				_ = lock.Release()
			}()
			next, err := clients[(i+1)%2].Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Since(<-released))
			_ = next.Release()
			spare += clients[i%2].Store().(*Store).spare.Stat().AcquireCount() // of all before, too
		}
		if what == "direct" && spare > 5 {
			t.Error("notices are sent on the spare connection, though the pool is free")
		}
		slices.Sort(times)
		if times[2] > tt.within {
			t.Errorf("%s: half of the hand-overs take %v or longer: %v", what, times[2], times)
		}
	}
}

// A refused attempt writes nothing: no log, no number of a transaction. Nor does a Lookup.
func TestRefusedAttemptWritesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	grant(t, s, "name", time.Hour)
	tx := pgtest.Begin(t, s.pool)
	for _, text := range []string{
		"SELECT outcome FROM @.acquire('{name}', '{other}', '{h}', '{1000}', '{0}', '{1}', '{1}', '{0}', '{NULL}', NULL, false)",
		"SELECT held::text FROM @.look('name')",
	} {
		var result, id *string
		if err := tx.QueryRow(t.Context(), s.sql(text)).Scan(&result); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), "SELECT pg_current_xact_id_if_assigned()::text").Scan(&id); err != nil || id != nil {
			t.Errorf("%s (%s) writes: %v", text, *result, err)
		}
	}
}

// Names that are used once and never again do not fill the table. Those that others wait for, are
// held or had a token ahead of the clock stay. Owners that are admitted are told.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := open(t)
	told := make(chan struct{}, 10)
	defer s.Notify(func(name, _ string, _ int64) {
		if name == "" || name == "awaited" {
			told <- struct{}{}
		}
	})()
	for _, name := range []string{"released", "expired", "awaited", "dead", "held", "far ahead"} {
		req := request(name, time.Minute)
		if name == "far ahead" {
			req.Floor = time.Now().Add(12 * time.Hour).UnixMicro()
		}
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if name == "awaited" || name == "dead" {
			wait(t, s, name, time.Hour)
		}
		if name == "released" {
			release(t, s, req)
		}
	}
	execute(t, s, "UPDATE @.locks SET expires = now() - interval '2 hours', last_token = last_token - 8000000000 WHERE name <> 'held'")
	execute(t, s, "UPDATE @.places SET expires = now() WHERE name = 'dead'")
	wait(t, s, "held", time.Hour)
	behind := wait(t, s, "held", time.Hour) // It has died long ago.
	execute(t, s, "UPDATE @.places SET expires = now() - interval '2 hours' WHERE owner = '"+behind.Owner+"'")
	pgtest.Signaled(t, told) // It listens.
	if n := value[int64](t, s, "SELECT @.sweep_locks() + @.sweep_locks()"); n != 3 {
		t.Errorf("%d rows are swept, want 3", n)
	}
	pgtest.Signaled(t, told)
	if left := value[string](t, s, "SELECT string_agg(name, ' ' ORDER BY name) FROM @.locks"); left != "awaited far ahead held" {
		t.Errorf("left are %s", left)
	}
	if n := value[int64](t, s, "SELECT count(*) FROM @.places WHERE name = 'held'"); n != 1 {
		t.Errorf("%d places are left, want 1", n)
	}
}

// The release of a writer admits all readers behind it, within the time of a batch.
func TestManyReaders(t *testing.T) {
	t.Parallel()
	s := open(t)
	req, token := grant(t, s, "name", time.Hour)
	execute(t, s, `INSERT INTO @.places SELECT 'name', i::text, $1::bigint + i, 1, 1000000, false, now(), now() + interval '1 hour' FROM generate_series(1, 15000) AS i`, token)
	execute(t, s, "UPDATE @.locks SET others = true")
	release(t, s, req)
	if n := value[int64](t, s, "SELECT count(*) FROM @.entries WHERE hold"); n != 15000 {
		t.Errorf("%d readers are admitted", n)
	}
}

// An exclusive request that has found a name free, and then waits for the row, is not granted
// beside the slot that another transaction has made meanwhile.
func TestFreeUntilTheRowIsLocked(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := request("name", 300*time.Millisecond)
	first.Limit = 3
	if res, err := s.Acquire(t.Context(), first); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	tx := leaveOpen(t, s, "SELECT @.acquire('{name}', '{beside}', '{h}', '{60000000}', '{0}', '{3}', '{1}', '{0}', '{NULL}', NULL, false)")
	time.Sleep(first.TTL)
	done := make(chan driver.Result, 1)
	go func() {
		res, _ := s.Acquire(t.Context(), request("name", time.Minute)) // It may be refused for the row.
		done <- res
	}()
	pgtest.Eventually(t, "wait for the row", func() bool {
		return value[int64](t, s, "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", int32(tx.Conn().PgConn().PID())) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Granted {
		t.Errorf("an exclusive request is granted beside the hold of one of three slots: %+v", res)
	}
}

// Every update of locks stays within its page: no index has a column that it changes, and a page
// has room for another version of each of its rows. There is no more than one here. Room for the
// next ones comes from versions that nobody can see, and an open transaction that has written
// anything, in any database of the server, sees them all: other tests have such transactions.
func TestUpdatesStayWithinPages(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "pages"), "pool_max_conns=1") // One that is idle keeps its statistics for 10 s.
	var reqs []driver.Request
	for i := range 200 {
		req, _ := grant(t, s, fmt.Sprint("name ", i), time.Hour)
		reqs = append(reqs, req)
	}
	for i, req := range reqs {
		switch i % 4 {
		case 0:
			req.TTL *= 2
			state(t, s, req)
		case 1:
			release(t, s, req)
		case 2:
			release(t, s, req)
			grant(t, s, req.Name, time.Hour)
		}
	}
	statistic := func(column string) int64 {
		return value[int64](t, s, "SELECT "+column+" FROM pg_stat_user_tables WHERE relid = '@.locks'::regclass")
	}
	pgtest.Eventually(t, "statistics of all updates", func() bool { return statistic("n_tup_upd") >= int64(len(reqs)) })
	if all, within := statistic("n_tup_upd"), statistic("n_tup_hot_upd"); within != all {
		t.Errorf("of %d updates %d stayed within their pages", all, within)
	}
}
