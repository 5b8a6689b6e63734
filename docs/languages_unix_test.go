//go:build unix

package docs

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// TestGuideOnPostgres runs what languages.md shows of PostgreSQL: the calls of psql,
// the program in Python, and the lock of a transaction.
func TestGuideOnPostgres(t *testing.T) {
	ctx, url := t.Context(), servers.StartPostgres(t).URL("postgres")
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := pgstore.New(pool, nil)
	if err := store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	locks := holdfast.New(store, nil)
	defer locks.Close()

	t.Run("psql", func(t *testing.T) {
		got := run(t, url, "psql", "-XAt", url, "-c", block(t, "sql", "acquire_lock("))
		lines := strings.Fields(got)
		if len(lines) != 4 || lines[0] != "t" || len(lines[1]) != 16 || lines[2] != "t" || lines[3] != "t" {
			t.Errorf("the four calls answer %q, want t, a token, t, t", got)
		}
	})
	t.Run("slots", func(t *testing.T) {
		got := run(t, url, "psql", "-XAt", url, "-c", block(t, "sql", "acquire_slot("))
		lines := strings.Fields(got)
		if len(lines) != 4 || len(lines[0]) != 16 || len(lines[1]) != 16 || lines[2] != "t" || lines[3] != "t|t" {
			t.Errorf("the four calls answer %q, want two tokens, t, t|t", got)
		}
	})
	t.Run("Python", func(t *testing.T) {
		lock, err := locks.Acquire(ctx, "order:42", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan string, 1)
		go func() { done <- run(t, url, "/usr/bin/python3", "-c", block(t, "python", "psycopg")) }()
		select {
		case got := <-done:
			t.Errorf("the program did not wait for our lock: %s", got)
		case <-lock.Context().Done():
			t.Error(context.Cause(lock.Context()))
		case <-waits(t, pool):
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
		if got := <-done; !strings.HasPrefix(got, "working with token 1") {
			t.Errorf("the program prints %q", got)
		}
		lock, err = locks.TryAcquire(ctx, "order:42", nil)
		if err != nil {
			t.Fatalf("after the program: %v", err)
		}
		_ = lock.Release()
	})
	t.Run("Python, slots", func(t *testing.T) {
		lock, err := locks.Acquire(ctx, "order:42", &holdfast.Options{Limit: 20})
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
		acquire := block(t, "python", "acquire_slot(")
		var program []string
		for line := range strings.Lines(block(t, "python", "psycopg")) {
			if strings.HasPrefix(line, "ACQUIRE =") {
				line = acquire + "\n"
			}
			program = append(program, line)
		}
		got := run(t, url, "/usr/bin/python3", "-c", strings.Join(program, ""))
		if !strings.HasPrefix(got, "working with token 1") {
			t.Errorf("beside another slot, the program prints %q", got)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		if _, err := pool.Exec(ctx, "CREATE TABLE orders (id integer, state text)"); err != nil {
			t.Fatal(err)
		}
		if err := transaction(ctx, pool); err != nil {
			t.Error(err)
		}
	})
}

func transaction(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if err := advisory.LockTx(ctx, tx, "order:42", nil); err != nil { // TryLockTx does not wait
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE orders SET state = 'shipped' WHERE id = 42")
	if err != nil {
		return err
	}
	err = tx.Commit(ctx)
	return err
}

// block returns the first block of languages.md in this language that contains text.
func block(t *testing.T, language, text string) string {
	t.Helper()
	guide, err := os.ReadFile("languages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(guide), "```"+language+"\n")[1:] {
		if block, _, _ := strings.Cut(block, "```"); strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("languages.md has no block of %s with %q", language, text)
	return ""
}

// run returns what a program prints.
func run(t *testing.T, url, program string, args ...string) string {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// waits returns a channel that is closed when the program in Python has tried to
// take the lock and was refused.
func waits(t *testing.T, pool *pgxpool.Pool) <-chan struct{} {
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		const statement = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT holdfast.acquire_lock_token(%' AND state = 'idle'"
		for tried := 0; tried == 0; time.Sleep(10 * time.Millisecond) {
			if err := pool.QueryRow(t.Context(), statement).Scan(&tried); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return refused
}
