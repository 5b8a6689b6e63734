//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// The processes of TestLanguages, and how often each increments the counter.
const (
	pythonWorkers, pythonRounds = 4, 50
	goWorkers, goRounds         = 4, 75
)

// Four processes of Python, which know acquire_lock and release_lock only, and
// four of Go increment a counter that only the lock protects.
func TestLanguages(t *testing.T) {
	t.Parallel()
	s := open(t)
	change(t, s, "CREATE TABLE IF NOT EXISTS @schema@.counter (value integer)")
	change(t, s, "INSERT INTO @schema@.counter VALUES (0)")
	t.Cleanup(func() {
		pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.expandSQL("DROP TABLE @schema@.counter"))
	})
	// No commit waits for the disk: what is asked of the lock is exclusion.
	url, schema := pgtest.Postgres().URL("postgres")+"&options=-c%20synchronous_commit%3Doff", s.options.Schema
	var workers []*exec.Cmd
	for i := range pythonWorkers {
		workers = append(workers, exec.Command(python(), "testdata/worker.py", url, schema, fmt.Sprint("python-", i), strconv.Itoa(pythonRounds)))
	}
	for range goWorkers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerVariable+"="+url, workerVariable+"_SCHEMA="+schema)
		workers = append(workers, cmd)
	}
	for _, cmd := range workers {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range workers {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", cmd.Args, err)
		}
	}
	var value int
	query(t, s, "SELECT value FROM @schema@.counter", nil, &value)
	if want := pythonWorkers*pythonRounds + goWorkers*goRounds; value != want {
		t.Errorf("the counter is %d, want %d", value, want)
	}
}

// python returns the interpreter that sees the packages of the system.
func python() string {
	const system = "/usr/bin/python3"
	if _, err := os.Stat(system); err == nil {
		return system
	}
	return "python3"
}

// workerVariable makes the test binary a worker of TestLanguages.
const workerVariable = "PGSTORE_TEST_WORKER"

func work(url string) error {
	ctx, opts := context.Background(), &Options{Schema: os.Getenv(workerVariable + "_SCHEMA")}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store := newPoolEngine(pool, opts)
	defer store.Close()
	locks := holdfast.New(newStore(store), nil)
	defer locks.Close()
	for range goRounds {
		lock, err := locks.Acquire(ctx, "counter", &holdfast.Options{Metadata: map[string]string{"language": "go"}})
		if err != nil {
			return err
		}
		var value int
		if err := pool.QueryRow(ctx, store.expandSQL("SELECT value FROM @schema@.counter")).Scan(&value); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, store.expandSQL("UPDATE @schema@.counter SET value = $1"), value+1); err != nil {
			return err
		}
		if err := lock.Release(); err != nil {
			return err
		}
	}
	return nil
}

// Each side sees what the other has written, and the tokens of both are one
// sequence.
func TestSharedRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	var taken bool
	query(t, s, `SELECT @acquire_lock@('name', 'worker-7', 60, '{"job": "import", "try": 2}')`, nil, &taken)
	held := refuse(t, s, "name")
	if !taken || held.Holder != "worker-7" || held.Metadata["job"] != "import" || held.Metadata["try"] != "2" || held.Token == 0 {
		t.Fatalf("acquire_lock gives %v; its lock is shown as %+v", taken, held)
	}
	query(t, s, "SELECT @acquire_lock@('name', 'worker-8')", nil, &taken)
	if taken {
		t.Error("acquire_lock has taken a lock that somebody else has")
	}
	var token *int64
	query(t, s, "SELECT @acquire_lock_token@('name', 'worker-7')", nil, &token)
	if token == nil || *token != held.Token {
		t.Errorf("the same holder's second acquire_lock gives the token %v, want %d as before", valueOrZero(token), held.Token)
	}
	var done bool
	query(t, s, "SELECT @release_lock@('name', 'worker-8')", nil, &done)
	if done {
		t.Error("release_lock has released somebody else's lock")
	}
	query(t, s, "SELECT @extend_lock@('name', 'worker-7', 3600)", nil, &done)
	if rec := refuse(t, s, "name"); !done || rec.Remaining < 50*time.Minute {
		t.Errorf("extend_lock gives %v, and the lock has %v left", done, rec.Remaining)
	}
	query(t, s, "SELECT @release_lock@('name', 'worker-7')", nil, &done)
	if !done {
		t.Error("release_lock has not released the lock")
	}

	req := pgtest.Request("name", time.Minute)
	req.Metadata = map[string]string{"job": "report"}
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted || res.Token <= held.Token {
		t.Fatalf("Acquire after release_lock: %+v, %v, want a token above %d", res, err, held.Token)
	}
	var job string
	query(t, s, "SELECT metadata->>'job' FROM @table@ WHERE lock_name = 'name'", nil, &job)
	if job != "report" {
		t.Errorf("the metadata that others read has the job %q", job)
	}
	for _, text := range []string{"SELECT @acquire_lock@('name', 'worker-7')", "SELECT @release_lock@('name', 'worker-7')", "SELECT @release_lock@('name', '')",
		"SELECT @extend_lock@('name', 'worker-7')", "SELECT @extend_lock@('name', '')"} {
		query(t, s, text, nil, &done)
		if done {
			t.Errorf("%s does something to a lock of package holdfast", s.expandSQL(text))
		}
	}
	release(t, s, req)
	query(t, s, "SELECT @acquire_lock_token@('name', 'worker-7')", nil, &token)
	if token == nil || *token <= res.Token {
		t.Errorf("acquire_lock_token after a release gives %v, want more than %d", valueOrZero(token), res.Token)
	}
}

// A name that is kept after a release is kept from the callers of acquire_lock.
func TestKeptRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	req := grant(t, s, "name", time.Minute)
	if _, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner, Keep: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, holder := range []string{"worker", req.Owner} {
		var taken bool
		query(t, s, "SELECT @acquire_lock@('name', $1)", []any{holder}, &taken)
		if taken {
			t.Error("acquire_lock has taken a name that is kept")
		}
	}
}

// A program that writes the table itself, as before there were functions, is
// seen as what it is: its lock has no token and no holder of a hold before it.
func TestRowsOfOldPrograms(t *testing.T) {
	t.Parallel()
	s := open(t)
	req, token := grantToken(t, s, "name", time.Minute)
	release(t, s, req)
	change(t, s, "UPDATE @table@ SET holder_id = 'old', acquired_at = now(), expires_at = now() + interval '1 minute' WHERE lock_name = 'name' AND expires_at < now()")
	if rec := refuse(t, s, "name"); rec.Holder != "old" || rec.Token != 0 {
		t.Errorf("the lock of an old program is shown as %+v", rec)
	}
	var later *int64
	query(t, s, "SELECT @acquire_lock_token@('name', 'old')", nil, &later)
	if later == nil || *later <= token {
		t.Errorf("acquire_lock_token by the holder gives %v, want a token above %d", valueOrZero(later), token)
	}
	change(t, s, "DELETE FROM @table@ WHERE lock_name = 'name' AND holder_id = 'old'")
	if _, last := grantToken(t, s, "name", time.Minute); last <= *later {
		t.Errorf("after the row was deleted the token is %d, want more than %d", last, *later)
	}
}

// In a transaction that is old already the TTL counts from the call.
func TestAcquireInOldTransaction(t *testing.T) {
	t.Parallel()
	s := open(t)
	tx, err := s.pool.(pgxPool).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(2)"); err != nil {
		t.Fatal(err)
	}
	var taken, whole bool
	if err := tx.QueryRow(t.Context(), s.expandSQL("SELECT @acquire_lock@('name', 'worker', 1)")).Scan(&taken); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), s.expandSQL("SELECT expires_at - now() >= interval '3 seconds' FROM @table@ WHERE lock_name = 'name'")).Scan(&whole); err != nil {
		t.Fatal(err)
	}
	if !taken || !whole {
		t.Errorf("acquire_lock in an old transaction: %v, a full TTL: %v", taken, whole)
	}
}

// Each argument of a documented call has a cast: without one an overload that
// somebody else has made may be a better match.
func TestDocumentedCasts(t *testing.T) {
	t.Parallel()
	calls := 0
	for _, file := range []string{"doc.go", "testdata/worker.py", "../docs/guide.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`SELECT [a-z.]*(acquire|extend|release)_(lock|slot)[a-z_]*\(.*`).FindAllString(string(text), -1) {
			calls++
			call = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(call, "{}") // commas within JSON
			args, _, _ := strings.Cut(call[strings.Index(call, "(")+1:], ")")
			for arg := range strings.SplitSeq(args, ",") {
				if !strings.Contains(arg, "::") {
					t.Errorf("%s: the argument %q of %s has no cast", file, strings.TrimSpace(arg), call)
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("%d calls were found: the test tests nothing", calls)
	}
}
