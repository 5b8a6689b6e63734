//go:build unix

package advisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

const clientBound = 20 * time.Second

// newClient returns a client of package holdfast over a store of its own.
func newClient(tb testing.TB, url string, opts *advisory.Options) (*holdfast.Client, *pgxpool.Pool) {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	store := advisory.New(pool, opts)
	locks := holdfast.New(store, nil)
	tb.Cleanup(func() {
		_ = locks.Close() // What it reports is the test's own doing.
		_ = store.Close()
		pool.Close()
	})
	return locks, pool
}

// holderURL tells the process of TestHolderProcess that it is one, and
// where the server is.
const holderURL = "HOLDFAST_TEST_ADVISORY_HOLDER"

// hungTTL is the TTL of a holder that is stopped.
const hungTTL = 2 * time.Second

// A holder that is stopped as by SIGSTOP is succeeded when its TTL is over, and
// knows at its first look that it has lost the lock.
func TestHungHolder(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	url := server.URL("postgres")
	holder := exec.Command(os.Args[0], "-test.run=^TestHolderProcess$", "-test.v=false")
	holder.Env = append(os.Environ(), holderURL+"="+url)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill() // It may have ended.
		_ = holder.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the holder says %q, %v", lines.Text(), lines.Err())
	}
	stopped := time.Now()
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	locks, _ := newClient(t, url, nil)
	ctx, cancel := context.WithTimeout(t.Context(), clientBound)
	defer cancel()
	if _, err := locks.Acquire(ctx, "name", nil); err != nil {
		t.Fatalf("the lock of a stopped holder: %v", err)
	}
	t.Logf("a holder with a TTL of %v was succeeded %v after it was stopped", hungTTL, time.Since(stopped))
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "look\n"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "lost" {
		t.Errorf("after its stop the holder says %q, want lost", lines.Text())
	}
}

// TestHolderProcess is the other process of TestHungHolder, and
// nothing in the process of the tests. It looks at its lock when it is asked to.
func TestHolderProcess(t *testing.T) {
	url := os.Getenv(holderURL)
	if url == "" {
		return
	}
	locks, _ := newClient(t, url, nil)
	lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: hungTTL})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	bufio.NewScanner(os.Stdin).Scan()
	if lock.Err() == nil {
		fmt.Println("held")
		return
	}
	fmt.Println("lost")
}

// The context of a lock ends as soon as its session does, long before the next
// renewal.
func TestLossEndsTheContext(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	locks, pool := newClient(t, server.URL("postgres"), nil)
	for range 20 {
		lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		held := lock.Context()
		began := time.Now()
		if _, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held.Done():
			t.Logf("the context ended after %v", time.Since(began))
		case <-time.After(10 * time.Second):
			t.Fatal("the context goes on")
		}
		if err := lock.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	}
}
