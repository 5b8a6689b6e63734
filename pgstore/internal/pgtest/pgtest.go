//go:build unix

package pgtest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// Bound is how long anything may take that must happen in the end.
const Bound = 20 * time.Second

// OpenPool returns a pool that ends with the test. The parameters are of a
// URL, as in "pool_max_conns=1".
func OpenPool(tb testing.TB, url string, parameters ...string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), strings.Join(append([]string{url}, parameters...), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Begin begins a transaction that is rolled back when the test ends, before its pool is closed.
func Begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// OpenSQL is OpenPool for database/sql.
func OpenSQL(tb testing.TB, url string, parameters ...string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", strings.Join(append([]string{url}, parameters...), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(20) // else it would take all that the server has, and fail
	db.SetMaxIdleConns(20) // else it would make a connection for nearly every call of a crowd
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Execute runs statements on a connection of its own.
func Execute(tb testing.TB, url, text string, args ...any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, text, args...); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}

// QueryValue runs a statement and returns the first column of its row.
func QueryValue[T any](t *testing.T, pool *pgxpool.Pool, text string, args ...any) T {
	t.Helper()
	var value T
	if err := pool.QueryRow(t.Context(), text, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// What tests do with a store.
var (
	Request    = storecheck.Request
	Grant      = storecheck.Grant
	Wait       = storecheck.Wait
	Refuse     = storecheck.Refuse
	Release    = storecheck.Release
	State      = storecheck.State
	Eventually = storecheck.Eventually
)

// Signaled waits for a signal.
func Signaled(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	select {
	case <-signals:
	case <-time.After(Bound):
		t.Fatal("no signal came")
	}
}
