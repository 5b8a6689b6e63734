//go:build unix

package pgstore

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// shared are servers that many tests use at the same time, each test in schemas
// of its own. They do not wait for the disk: what they forget in a power cut is
// of no interest, and tests that crash a server have their own.
var shared struct {
	postgres  func() *servers.Postgres
	pgbouncer func() *servers.PgBouncer
}

func TestMain(m *testing.M) {
	if url := os.Getenv(workerVariable); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	tb := &suite{}
	shared.postgres = sync.OnceValue(func() *servers.Postgres {
		return servers.StartPostgres(tb, "max_connections=400", "fsync=off", "log_min_messages=fatal")
	})
	shared.pgbouncer = sync.OnceValue(func() *servers.PgBouncer {
		return servers.StartPgBouncer(tb, shared.postgres())
	})
	code := m.Run()
	tb.end()
	os.Exit(code)
}

// suite is the testing.TB of what lives as long as the test binary.
type suite struct {
	testing.TB // nil: servers calls the methods below only
	mu         sync.Mutex
	cleanups   []func()
}

func (b *suite) Helper()      {}
func (b *suite) Failed() bool { return false }

func (b *suite) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

func (b *suite) Error(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }
func (b *suite) Fatal(args ...any)                 { b.Fatalf("%s", fmt.Sprint(args...)) }
func (b *suite) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (b *suite) end() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
}
