package docs

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestRivalRedisSemaphore tests the row of redis-semaphore in rivals-shared.md.
func TestRivalRedisSemaphore(t *testing.T) {
	host, port, err := net.SplitHostPort(servers.StartRedis(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", "../redisstore/testdata/interop/semaphorecases.js", host, port).CombinedOutput()
	if err != nil {
		t.Fatalf("run \"scripts/needs all\" if packages of npm are missing: %v\n%s", err, out)
	}
	var found map[string]any
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := map[string]any{
		"raisedAdmits": true, "formerAdmits": false,
		"deadIsReplaced": true, "aliveKeepsIt": true,
		"shorterTimeoutAdmitsASecond": true, "firstIsTold": false,
		"served": []any{"second", "first"},
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("redis-semaphore: %v, and the page says %v", found, want)
	}
}

// TestRivalAdvisoryLocks tests the row of DistributedLock's reader-writer lock on PostgreSQL in
// rivals-shared.md, with the functions of the server that the library calls.
func TestRivalAdvisoryLocks(t *testing.T) {
	ctx, url := t.Context(), servers.StartPostgres(t).URL("postgres")
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		return conn
	}
	observer, dead, reader := connect(), connect(), connect()
	waitsFor := func(n int) {
		const statement = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
		for waiting := -1; waiting != n; time.Sleep(time.Millisecond) {
			if err := observer.QueryRow(ctx, statement).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
	}
	order := make(chan string, 2)
	var group sync.WaitGroup
	lockLater := func(who, function string) {
		conn := connect()
		t.Cleanup(group.Wait) // before the connection is closed
		group.Go(func() {
			if _, err := conn.Exec(ctx, "SELECT "+function+"(7)"); err != nil {
				t.Error(err)
			}
			order <- who
			_, _ = conn.Exec(ctx, "SELECT pg_advisory_unlock_all()")
		})
	}
	if _, err := dead.Exec(ctx, "SELECT pg_advisory_lock_shared(7)"); err != nil {
		t.Fatal(err)
	}
	lockLater("writer", "pg_advisory_lock")
	waitsFor(1)
	admitted := true
	if err := reader.QueryRow(ctx, "SELECT pg_try_advisory_lock_shared(7)").Scan(&admitted); err != nil || admitted {
		t.Errorf("a reader that comes while a writer waits: %v, %v", admitted, err)
	}
	lockLater("reader", "pg_advisory_lock_shared")
	waitsFor(2)
	if _, err := observer.Exec(ctx, "SELECT pg_terminate_backend($1)", int32(dead.PgConn().PID())); err != nil {
		t.Fatal(err)
	}
	if first, second := <-order, <-order; first != "writer" || second != "reader" {
		t.Errorf("the %s came first, then the %s", first, second)
	}
}

// TestRivalFlock tests the row of flock -s in rivals-shared.md.
func TestRivalFlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	start := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "flock", args...)
		cmd.Stdout = nil
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	// One process that has no child: a child would keep the file open when it is killed.
	reader := start("--no-fork", "-s", file, "sleep", "1000")
	awaitLocks(t, file, 1, 0)
	writer := start("--no-fork", file, "true")
	awaitLocks(t, file, 1, 1)
	if err := exec.Command("flock", "-s", "-n", file, "true").Run(); err != nil {
		t.Errorf("a reader that comes while a writer waits: %v", err)
	}
	_ = reader.Process.Kill()
	_ = reader.Wait()
	if err := writer.Wait(); err != nil {
		t.Errorf("the writer after the death of the reader: %v", err)
	}

	// Two readers become writers, each in turn: what they have read is old by then. This
	// process locks as flock -s 9; flock 9 does: in a PID namespace, /proc/locks lists no lock of a
	// process that has ended.
	var readers [2]*os.File
	for i := range readers {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		readers[i] = f
		lock(t, f, syscall.LOCK_SH)
	}
	var group sync.WaitGroup
	defer group.Wait()
	write := func(f *os.File) {
		lock(t, f, syscall.LOCK_EX)
		lock(t, f, syscall.LOCK_UN)
	}
	group.Go(func() { write(readers[0]) })
	awaitLocks(t, file, 1, 1) // its shared lock is gone while it waits
	write(readers[1])
}

// lock changes the lock of an open file, and waits for it.
func lock(t *testing.T, f *os.File, how int) {
	t.Helper()
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		t.Error(err)
	}
}

// awaitLocks waits until so many flock locks of a file are held, and so many are waited for.
func awaitLocks(t *testing.T, file string, held, waiting int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		h, w := flocks(t, file)
		if h == held && w == waiting {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%d locks and %d waiters, want %d and %d", h, w, held, waiting)
		}
	}
}

// flocks returns how many flock locks of a file are held, and how many are waited for.
func flocks(t *testing.T, file string) (held, waiting int) {
	t.Helper()
	inode, err := exec.Command("stat", "-c", "%i", file).Output()
	if err != nil {
		return 0, 0 // there is no file yet
	}
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		switch {
		case !strings.Contains(line, " FLOCK ") || !strings.Contains(line, ":"+strings.TrimSpace(string(inode))+" "):
		case strings.Contains(line, "-> "):
			waiting++
		default:
			held++
		}
	}
	return held, waiting
}
