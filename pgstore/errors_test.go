//go:build unix

package pgstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// refusing is a server that ends every connection with an error.
func refusing(t *testing.T, code, message string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				server := pgproto3.NewBackend(conn, conn)
				if _, err := server.ReceiveStartupMessage(); err != nil {
					return
				}
				server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message})
				_ = server.Flush() // A client that has gone needs no answer.
			}()
		}
	}()
	return l.Addr().String()
}

// A server that has no connection left, or is starting, expects to serve later:
// the error says so at the first attempt, of both stores and of their watches.
func TestRetryErrors(t *testing.T) {
	t.Parallel()
	for code, says := range map[string]string{"53300": "no connection left", "57P03": "starting or stopping"} {
		addr := refusing(t, code, "come back later")
		url := "postgres://postgres@" + addr + "/postgres?sslmode=disable"
		table, db, locks := newPoolEngine(pgtest.OpenPool(t, url), nil), newDBEngine(pgtest.OpenSQL(t, url), nil), advisory.New(pgtest.OpenPool(t, url), nil).Old()
		t.Cleanup(func() { _, _, _ = table.Close(), db.Close(), locks.Close() })
		for what, s := range map[string]olddriver.Store{"table": table, "database/sql": db, "advisory": locks} {
			calls := map[string]func() error{
				"Acquire": func() error {
					_, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
					return err
				},
				"Lookup": func() error {
					_, _, err := s.Lookup(t.Context(), "name")
					return err
				},
			}
			for verb, call := range calls {
				err := call()
				var retry *driver.RetryError
				if !errors.As(err, &retry) || !driver.IsNotApplied(err) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s of %s from a server that answers %s: %v, want a RetryError that says %q", verb, what, code, err, says)
				}
			}
		}
	}
	// What ends a session that was there says nothing of what it has done.
	s := open(t)
	if err := s.wrapErr(t.Context(), &serverError{"57P03"}); driver.IsNotApplied(err) {
		t.Errorf("57P03 after the sending of a statement: %v, want it left open", err)
	}
}

// A serverError is one of the server's.
type serverError struct{ code string }

func (e *serverError) Error() string    { return e.code }
func (e *serverError) SQLState() string { return e.code }

// An error is one line, and names an address and a reason once.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil { // Nobody listens there now.
		t.Fatal(err)
	}
	full := servers.StartPostgres(t, "max_connections=5", "superuser_reserved_connections=0", "max_wal_senders=0", "autovacuum=off")
	pool := pgtest.OpenPool(t, full.URL("postgres"), "pool_max_conns=9")
	for {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			break
		}
		t.Cleanup(conn.Release)
	}
	for _, at := range []string{addr, full.Addr} {
		for _, mode := range []string{"disable", "prefer"} {
			url := "postgres://postgres:SecretWord@" + at + "/postgres?sslmode=" + mode
			table, locks := newPoolEngine(pgtest.OpenPool(t, url), nil), advisory.New(pgtest.OpenPool(t, url), nil).Old()
			t.Cleanup(func() { _, _ = table.Close(), locks.Close() })
			_, err := table.Acquire(t.Context(), pgtest.Request("name", time.Minute))
			_, advisoryErr := locks.Acquire(t.Context(), pgtest.Request("name", time.Minute))
			_, listenErr := table.dialListener()
			listenErr = table.wrapErr(t.Context(), driver.NotApplied(listenErr))
			migrateErr := table.Migrate(t.Context())
			for _, err := range []error{err, advisoryErr, listenErr, migrateErr} {
				if err == nil {
					t.Fatal("no error without a server")
				}
				text := err.Error()
				if strings.ContainsAny(text, "\n\t") || strings.Count(text, at) != 1 || strings.Contains(text, "SecretWord") || !driver.IsNotApplied(err) {
					t.Errorf("the error %q has several lines, or the address %s not once", text, at)
				}
			}
		}
	}
	s := open(t)
	if err := s.execQuery(context.Background(), "DO $$ BEGIN RAISE EXCEPTION E'one\n\ttwo'; END $$"); err == nil || strings.ContainsAny(err.Error(), "\n\t") {
		t.Errorf("an error of the server with two lines is %q", err)
	}
}

func TestErrorsOfMissingRights(t *testing.T) {
	t.Parallel()
	admin := servers.StartPostgres(t).URL("postgres")
	pgtest.Execute(t, admin, "CREATE ROLE \"app-1\" LOGIN")
	user := strings.Replace(admin, "postgres@", "app-1@", 1)
	open := func(opts *Options) *engine {
		s := newPoolEngine(pgtest.OpenPool(t, user), opts)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	for schema, want := range map[string]string{
		"public":    `migrate once as the owner of the schema "public"; or use another (schema=locks), after CREATE SCHEMA locks AUTHORIZATION "app-1"`,
		"elsewhere": `CREATE SCHEMA "elsewhere" AUTHORIZATION "app-1"`,
	} {
		if err := open(&Options{Schema: schema}).Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
	migrated(t, admin, nil)
	for _, table := range []string{"", "_waiters", "_shares"} {
		pgtest.Execute(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks"+table+" TO \"app-1\"")
	}
	pgtest.Execute(t, admin, "REVOKE EXECUTE ON FUNCTION holdfast_acquire FROM PUBLIC")
	_, err := open(nil).Acquire(t.Context(), olddriver.AcquireRequest{Name: "x", Owner: "me", TTL: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "EXECUTE on their functions") {
		t.Errorf("without EXECUTE: %v", err)
	}
}
