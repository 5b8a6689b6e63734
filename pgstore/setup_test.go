//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

var schemas struct {
	sync.Mutex
	conn *pgx.Conn // that empties them
	made int
	free []string
}

// newSchema returns a schema of the shared server with an empty table of locks.
// Schemas are used again when the test is over, which is faster than to make
// new ones.
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
		migrated(tb, pgtest.Postgres().URL("postgres"), &Options{Schema: name})
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
	if _, err = schemas.conn.Exec(ctx, "TRUNCATE "+pgx.Identifier{schema, DefaultTable}.Sanitize()+
		", "+pgx.Identifier{schema, DefaultTable + "_waiters"}.Sanitize()+
		", "+pgx.Identifier{schema, DefaultTable + "_shares"}.Sanitize()); err != nil {
		tb.Fatal(err)
	}
}

// migrated sets the table up.
func migrated(tb testing.TB, url string, opts *Options) {
	tb.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer pool.Close()
	s := newPoolEngine(pool, opts)
	defer s.Close()
	if err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// open returns a store in a schema of its own on the shared server.
func open(t *testing.T, parameters ...string) *engine {
	t.Helper()
	return openIn(t, newSchema(t), parameters...)
}

func openIn(t *testing.T, schema string, parameters ...string) *engine {
	t.Helper()
	s := newPoolEngine(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"), parameters...), &Options{Schema: schema})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// grant takes a lock that must be free.
func grant(t *testing.T, s *engine, name string, ttl time.Duration) olddriver.AcquireRequest {
	t.Helper()
	req, _ := grantToken(t, s, name, ttl)
	return req
}

func grantToken(t *testing.T, s *engine, name string, ttl time.Duration) (olddriver.AcquireRequest, int64) {
	t.Helper()
	req := pgtest.Request(name, ttl)
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it granted", name, res, err)
	}
	return req, res.Token
}

// refuse asks for a lock that must be held.
func refuse(t *testing.T, s *engine, name string) olddriver.Record {
	t.Helper()
	res, err := s.Acquire(t.Context(), pgtest.Request(name, time.Minute))
	if err != nil || res.Granted {
		t.Fatalf("Acquire of %q: %+v, %v, want it refused", name, res, err)
	}
	return res.Held
}

func release(t *testing.T, s *engine, req olddriver.AcquireRequest) bool {
	t.Helper()
	ours, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		t.Fatalf("Release of %q: %v", req.Name, err)
	}
	return ours
}

func renew(t *testing.T, s *engine, reqs ...olddriver.AcquireRequest) []olddriver.RenewOutcome {
	t.Helper()
	outcomes, err := s.Renew(t.Context(), pgtest.Renewals(reqs...))
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	return outcomes
}

// query reads one row by a pool of the store's.
func query(t *testing.T, s *engine, text string, args []any, columns ...any) {
	t.Helper()
	if err := s.queryRow(t.Context(), s.expandSQL(text), args, columns...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// change runs a statement as a person would, by hand.
func change(t *testing.T, s *engine, text string, args ...any) {
	t.Helper()
	if err := s.execQuery(t.Context(), s.expandSQL(text), args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// requestOf is a request by the contract of package driver.
func requestOf(req olddriver.AcquireRequest) driver.Request {
	return driver.Request{Name: req.Name, Owner: req.Owner, Holder: req.Holder, TTL: req.TTL}
}

// calls is a call of every verb.
func calls(s *engine, name string) map[string]func(ctx context.Context) error {
	return storecheck.Calls(newStore(s), requestOf(pgtest.Request(name, time.Minute)))
}

// fails checks the errors of these verbs.
func fails(t *testing.T, s *engine, target error, says string, verbs ...string) {
	t.Helper()
	storecheck.Fails(t, newStore(s), requestOf(pgtest.Request("name", time.Minute)), target, says, verbs...)
}
