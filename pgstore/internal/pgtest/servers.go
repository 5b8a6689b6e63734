//go:build unix

// Package pgtest has what the tests of the stores in PostgreSQL share.
package pgtest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// tb ends with the test binary.
var tb suite

// Postgres returns a server that many tests use at the same time. It does not wait for the disk:
// what it forgets in a power cut is of no interest, and tests that crash a server have their own.
var Postgres = sync.OnceValue(func() *servers.Postgres {
	return servers.StartPostgres(&tb, "max_connections=400", "fsync=off", "log_min_messages=fatal")
})

// PgBouncer returns a pooler in front of Postgres, by transactions.
var PgBouncer = sync.OnceValue(func() *servers.PgBouncer {
	return servers.StartPgBouncer(&tb, Postgres())
})

// Main runs the tests, ends the servers, and exits.
func Main(m *testing.M) {
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
