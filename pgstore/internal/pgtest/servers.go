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

// host ends with the test binary.
var host servers.Host

// Postgres returns a server that many tests use at the same time. It does not wait for the disk:
// what it forgets in a power cut is of no interest, and tests that crash a server have their own.
var Postgres = sync.OnceValue(func() *servers.Postgres {
	return servers.StartPostgres(&host, "max_connections=1000", "fsync=off", "log_min_messages=fatal")
})

// PgBouncer returns a pooler in front of Postgres, by transactions.
var PgBouncer = sync.OnceValue(func() *servers.PgBouncer {
	return servers.StartPgBouncer(&host, Postgres())
})

// Main runs the tests, ends the servers, and exits.
func Main(m *testing.M) {
	code := m.Run()
	if err := host.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
