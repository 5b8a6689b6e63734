//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var schemas struct {
	sync.Mutex
	conn *pgx.Conn // that empties them
	made int
	free []string
}

// newSchema returns a schema of the shared server without locks. Schemas are used again when the
// test is over, which is faster than to make new ones.
func newSchema(tb testing.TB) string {
	tb.Helper()
	schemas.Lock()
	defer schemas.Unlock()
	var name string
	if n := len(schemas.free); n > 0 {
		name, schemas.free = schemas.free[n-1], schemas.free[:n-1]
		empty(tb, name)
	} else {
		schemas.made++
		name = fmt.Sprintf("Test %d", schemas.made)
		migrate(tb, pgtest.Postgres().URL("postgres"), &Options{Schema: name})
	}
	tb.Cleanup(func() {
		schemas.Lock()
		defer schemas.Unlock()
		schemas.free = append(schemas.free, name)
	})
	return name
}

// empty removes all rows of a schema. The server starts a process for each connection, which costs
// more than most tests: one connection serves all of them.
func empty(tb testing.TB, schema string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), pgtest.Bound)
	defer cancel()
	var err error
	if schemas.conn == nil || schemas.conn.IsClosed() {
		if schemas.conn, err = pgx.Connect(ctx, pgtest.Postgres().URL("postgres")); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err = schemas.conn.Exec(ctx, strings.ReplaceAll("TRUNCATE @.locks, @.holds, @.places", "@", pgx.Identifier{schema}.Sanitize())); err != nil {
		tb.Fatal(err)
	}
}

// migrate sets a schema up.
func migrate(tb testing.TB, url string, opts *Options) {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer pool.Close()
	s := New(pool, opts)
	defer s.Close()
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// open returns a store in a schema of its own on the shared server.
func open(t testing.TB, parameters ...string) *Store {
	t.Helper()
	return openIn(t, newSchema(t), parameters...)
}

func openIn(t testing.TB, schema string, parameters ...string) *Store {
	t.Helper()
	s := New(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"), parameters...), &Options{Schema: schema})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Verbs, as tests use them.
var (
	request = pgtest.Request
	grant   = pgtest.Grant
	wait    = pgtest.Wait
	refuse  = pgtest.Refuse
	release = pgtest.Release
	state   = pgtest.State
)

// value reads one value by the store's pool, with @ as the schema.
func value[T any](t *testing.T, s *Store, text string, args ...any) T {
	t.Helper()
	values, err := query(t.Context(), s, s.pool.Acquire, text, args, pgx.RowTo[T])
	if err != nil || len(values) != 1 {
		t.Fatalf("%s: %v, %v", text, values, err)
	}
	return values[0]
}

// execute runs a statement as a person would, by hand.
func execute(t *testing.T, s *Store, text string, args ...any) {
	t.Helper()
	if _, err := query(t.Context(), s, s.pool.Acquire, text, args, pgx.RowToMap); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// fails checks the errors of these verbs.
func fails(t *testing.T, s *Store, target error, says string, verbs ...string) {
	t.Helper()
	storecheck.Fails(t, s, request("name", time.Minute), target, says, verbs...)
}
