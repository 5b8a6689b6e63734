//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// Four processes of Python, which know acquire_lock and release_lock only, and four Clients of Go
// increment a counter that only the lock protects.
func TestLanguages(t *testing.T) {
	t.Parallel()
	const workers, pythonRounds, goRounds = 4, 50, 75
	s := open(t)
	execute(t, s, "CREATE TABLE IF NOT EXISTS @.counter (value integer)")
	execute(t, s, "INSERT INTO @.counter VALUES (0)")
	t.Cleanup(func() { pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.sql("DROP TABLE @.counter")) })
	python := "/usr/bin/python3" // It sees the packages of the system.
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			cmd := exec.Command(python, "testdata/worker.py", pgtest.Postgres().URL("postgres"), s.schema, fmt.Sprint("python-", i), strconv.Itoa(pythonRounds))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v: %s", cmd.Args, err, out)
			}
		})
		all.Go(func() {
			if err := count(t.Context(), openIn(t, s.schema), goRounds); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, want := value[int32](t, s, "SELECT value FROM @.counter"), workers*(pythonRounds+goRounds); int(got) != want {
		t.Errorf("the counter is %d, want %d", got, want)
	}
}

// count does in Go what worker.py does.
func count(ctx context.Context, s *Store, rounds int) error {
	locks := holdfast.New(s, nil)
	defer locks.Close()
	for range rounds {
		lock, err := locks.Acquire(ctx, "counter", &holdfast.Options{Metadata: map[string]string{"language": "go"}})
		if err != nil {
			return err
		}
		var value int
		if err := s.pool.QueryRow(ctx, s.sql("SELECT value FROM @.counter")).Scan(&value); err != nil {
			return err
		}
		if _, err := s.pool.Exec(ctx, s.sql("UPDATE @.counter SET value = $1"), value+1); err != nil {
			return err
		}
		if err := lock.Release(); err != nil {
			return err
		}
	}
	return nil
}

// Each side sees what the other has written, and the tokens of both are one sequence.
func TestSharedRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	is := func(want bool, text string) {
		t.Helper()
		if got := value[bool](t, s, text); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	is(true, `SELECT @.acquire_lock('name', 'worker-7', 60, '{"job": "import", "try": 2}')`)
	held := refuse(t, s, "name")
	if held.Holder != "worker-7" || held.Metadata["job"] != "import" || held.Metadata["try"] != "2" || held.Token == 0 {
		t.Fatalf("the lock of acquire_lock is shown as %+v", held)
	}
	is(false, "SELECT @.acquire_lock('name', 'worker-8')")
	if token := value[int64](t, s, "SELECT @.acquire_lock_token('name', 'worker-7')"); token != held.Token {
		t.Errorf("the same holder's second acquire_lock gives the token %v, want %d as before", token, held.Token)
	}
	is(false, "SELECT @.release_lock('name', 'worker-8')")
	is(true, "SELECT @.extend_lock('name', 'worker-7', 3600)")
	if rec := refuse(t, s, "name"); rec.Remaining < 50*time.Minute {
		t.Errorf("after extend_lock the lock has %v left", rec.Remaining)
	}
	is(true, "SELECT @.release_lock('name', 'worker-7')")

	req := request("name", time.Minute)
	req.Metadata = map[string]string{"job": "report"}
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted || res.Token <= held.Token {
		t.Fatalf("Acquire after release_lock: %+v, %v, want a token above %d", res, err, held.Token)
	}
	is(true, "SELECT metadata->>'job' = 'report' FROM @.locks WHERE name = 'name'")
	for _, text := range []string{"SELECT @.acquire_lock('name', 'worker-7')", "SELECT @.release_lock('name', 'worker-7')",
		"SELECT @.release_lock('name', '')", "SELECT @.extend_lock('name', 'worker-7')", "SELECT @.extend_lock('name', '')"} {
		is(false, text)
	}
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: req.Owner, Keep: time.Minute}); err != nil {
		t.Fatal(err)
	}
	is(false, "SELECT @.acquire_lock('name', '"+req.Owner+"')") // The name is kept.

	for i, limit := range []int{2, 2, -1} {
		is(true, fmt.Sprintf("SELECT @.acquire_slot('slots', 'worker-%d', 30, '{}', %d) IS %s NULL", i, limit, map[bool]string{true: "NOT", false: ""}[i < 2]))
	}
	is(false, "SELECT @.acquire_lock('slots', 'worker-0')") // Its hold is of another kind.
	is(true, "SELECT @.extend_lock('slots', 'worker-1') AND @.release_lock('slots', 'worker-1') AND @.release_lock('slots', 'worker-0')")
	for _, ttl := range []string{"30", "30.0", "0.5", "30::smallint", "30::bigint", "30::real", "30::numeric"} {
		is(true, "SELECT @.acquire_lock('ttl', 'worker', "+ttl+") AND @.release_lock('ttl', 'worker')")
	}
	for _, call := range []string{"repeat('n', 256), 'worker', 30, '{}'", "'name', repeat('h', 256), 30, '{}'",
		"'name', 'worker', 30, (SELECT jsonb_agg(n) FROM generate_series(1, 10000) AS n)"} {
		if _, err := s.pool.Exec(t.Context(), s.sql("SELECT @.acquire_lock("+call+")")); pgclient.SQLState(err) != "22001" {
			t.Errorf("acquire_lock(%s): %v, want it refused as too long", call, err)
		}
	}
	for _, ttl := range []string{"0", "0.001", "'NaN'", "'infinity'", "31536001", "NULL", "-1"} {
		for _, verb := range []string{"acquire_lock", "acquire_lock_token", "extend_lock"} {
			if _, err := s.pool.Exec(t.Context(), s.sql("SELECT @."+verb+"('ttl', 'worker', "+ttl+")")); pgclient.SQLState(err) != "22023" {
				t.Errorf("%s with a TTL of %s: %v, want it refused as a parameter", verb, ttl, err)
			}
		}
	}
}

// The TTL of acquire_lock counts from the moment at which it has the row.
func TestTTLBehindOpenRow(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "late_rows"))
	req, _ := grant(t, s, "name", time.Minute)
	release(t, s, req)
	tx := leaveOpen(t, s, "SELECT FROM @.locks WHERE name = $1 FOR UPDATE", "name")
	ended := make(chan struct{})
	time.AfterFunc(600*time.Millisecond, func() {
		_ = tx.Rollback(context.Background())
		close(ended)
	})
	if !value[bool](t, s, "SELECT @.acquire_lock('name', 'one', 0.5) AND cardinality((@.look('name')).held) = 1") {
		t.Error("a lock that is granted is over")
	}
	<-ended
}

// acquire_lock never passes a waiter, and release_lock tells the first. In a transaction that is
// old already the TTL counts from the call, and the durability of the transaction stays as it was.
func TestLanguagesBesideQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	value[bool](t, s, "SELECT @.acquire_lock('name', 'worker', 3600)")
	told := make(chan int64, 10)
	defer s.Notify(func(name, _ string, token int64) {
		if name != "" && token > 0 {
			told <- token
		}
	})()
	w := wait(t, s, "name", time.Minute)
	pgtest.Eventually(t, "connection that listens", func() bool {
		return value[int64](t, s, "SELECT count(*) FROM pg_stat_activity WHERE query = $1", "LISTEN "+s.channel) > 0
	})
	tx := pgtest.Begin(t, s.pool)
	var ended, whole bool
	var level string
	if err := tx.QueryRow(t.Context(), s.sql("SELECT @.release_lock('name', 'worker'), current_setting('synchronous_commit') FROM pg_sleep(1)")).Scan(&ended, &level); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), s.sql("SELECT @.acquire_lock('other', 'worker', 60)")).Scan(&whole); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), s.sql("SELECT expires - now() > interval '61 seconds' FROM @.locks WHERE name = 'other'")).Scan(&whole); err != nil {
		t.Fatal(err)
	}
	if !ended || !whole || level != "on" {
		t.Errorf("release_lock: %v, a full TTL: %v, synchronous_commit %s", ended, whole, level)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if value[bool](t, s, "SELECT @.acquire_lock('name', 'worker-8')") {
		t.Error("acquire_lock has passed a waiter")
	}
	select {
	case <-told:
	case <-time.After(pgtest.Bound):
		t.Error("release_lock has told nobody")
	}
	if got := state(t, s, w); got != driver.Held {
		t.Errorf("the waiter is %v", got)
	}
}
