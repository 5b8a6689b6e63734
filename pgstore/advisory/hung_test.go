//go:build unix

package advisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
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

// A lock whose TTL is short next to the work is held throughout it, on one
// connection that idles.
func TestRenewedByClient(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	locks, pool := newClient(t, server.URL("postgres"), nil)
	other, _ := newClient(t, server.URL("postgres"), nil)
	lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := other.Acquire(ctx, "name", nil); err == nil {
		t.Errorf("a lock that is renewed was granted to another; its holder: %v", lock.Err())
	}
	var pid int
	if err := pool.QueryRow(t.Context(), "SELECT pid FROM pg_locks WHERE locktype = 'advisory'").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
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

// Lost answers and acquisitions given up in flight leave nobody locked out, and
// no lock behind.
func TestFaultsOfClient(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	proxy := faultproxy.Start(t, server.Addr)
	locks, _ := newClient(t, "postgres://postgres@"+proxy.Addr()+"/postgres?sslmode=disable", nil)
	_, direct := newClient(t, server.URL("postgres"), nil)
	for round := range 10 {
		for _, verb := range []string{"try", "unlock"} {
			proxy.LoseReply(func(request []byte) bool {
				return request[0] == 'B' && strings.Contains(string(request), "holdfast_"+verb+"\x00")
			})
			lock, err := locks.Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			_ = lock.Release() // Its answer may be the one that is lost.
		}
	}
	proxy.LoseReply(func([]byte) bool { return false })
	proxy.Delay(faultproxy.Up, 0, 10*time.Millisecond)
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				if lock, err := locks.Acquire(ctx, fmt.Sprint(g, "/", i), nil); err == nil {
					_ = lock.Release() // The locks are counted below.
				}
				cancel()
			}
		})
	}
	group.Wait()
	for deadline := time.Now().Add(clientBound); ; {
		var left int
		if err := direct.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d locks are left behind", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
