//go:build unix

package advisory

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A lock of a transaction excludes others until the transaction ends, those of a Store too,
// whichever client library it is of, and through a pooler of transactions too.
func TestLockTx(t *testing.T) {
	t.Parallel()
	for way, url := range map[string]string{"direct": pgtest.Postgres().URL("postgres"), "pooler": pgtest.PgBouncer().URL("postgres")} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			for range 3 { // Of a pooler's client each may be another session of the server, or one that was another's.
				testLockTx(t, pgtest.OpenPool(t, url), pgtest.OpenSQL(t, url), t.Name())
			}
		})
	}
}

func testLockTx(t *testing.T, pool *pgxpool.Pool, db *sql.DB, name string) {
	s := open(t, pgtest.Postgres().Addr, nil)

	first := pgtest.Begin(t, pool)
	if err := LockTx(t.Context(), first, name, nil); err != nil {
		t.Fatal(err)
	}
	second, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Rollback() })
	if locked, err := TryLockSQLTx(t.Context(), second, name, nil); err != nil || locked {
		t.Errorf("TryLockSQLTx of a held lock gives %v, %v", locked, err)
	}
	refused(t, s, name)
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := LockSQLTx(t.Context(), second, name, nil); err != nil {
		t.Error(err)
	}
	refused(t, s, name)
	if err := second.Rollback(); err != nil {
		t.Fatal(err)
	}
	req := grant(t, s, name, time.Minute)
	third := pgtest.Begin(t, pool)
	if err := LockTx(t.Context(), third, "", nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("LockTx without a name: %v", err)
	}
	if err := LockTx(t.Context(), nil, name, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("LockTx without a transaction: %v, want ErrInvalid", err)
	}
	if _, err := TryLockSQLTx(t.Context(), nil, name, nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("TryLockSQLTx without a transaction: %v, want ErrInvalid", err)
	}
	if locked, err := TryLockTx(t.Context(), third, name, nil); err != nil || locked {
		t.Errorf("TryLockTx of a lock of a store gives %v, %v", locked, err)
	}
	if err := third.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, s, req)
}

// Readers exclude a writer, and not each other, through a pooler of transactions too.
func TestSharedLockTx(t *testing.T) {
	t.Parallel()
	pool, shared := pgtest.OpenPool(t, pgtest.PgBouncer().URL("postgres")), &TxOptions{Shared: true}
	var readers []pgx.Tx
	for range 2 {
		tx := pgtest.Begin(t, pool)
		readers = append(readers, tx)
		if err := LockTx(t.Context(), tx, t.Name(), shared); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, pgtest.Postgres().Addr, nil)
	for _, tx := range readers {
		refused(t, s, t.Name())
		if locked, err := TryLockTx(t.Context(), pgtest.Begin(t, pool), t.Name(), nil); err != nil || locked {
			t.Errorf("TryLockTx beside a reader gives %v, %v", locked, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
	writer := pgtest.Begin(t, pool)
	if locked, err := TryLockTx(t.Context(), writer, t.Name(), nil); err != nil || !locked {
		t.Errorf("TryLockTx of a free lock gives %v, %v", locked, err)
	}
	if locked, err := TryLockTx(t.Context(), pgtest.Begin(t, pool), t.Name(), shared); err != nil || locked {
		t.Errorf("TryLockTx by a reader beside a writer gives %v, %v", locked, err)
	}
}

// Raw keys are those of the SQL functions, in both their forms, for a transaction and for a Store.
func TestLockTxRawKeys(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, &Options{Keys: Keys{Raw: true}})
	pool := s.pool
	for key, arguments := range map[string]string{
		"-9223372036854775808": "(-9223372036854775808)::bigint",
		"7000000001":           "7000000001",
		"4294967298":           "4294967298", // It is not that of the pair below.
		"1,2":                  "1, 2",
		"-2147483648,-7":       "-2147483648, -7",
		"7,7000001":            "7, 7000001",
	} {
		tx := pgtest.Begin(t, pool)
		if locked, err := TryLockTx(t.Context(), tx, key, &TxOptions{Keys: Keys{Raw: true}}); err != nil || !locked {
			t.Errorf("TryLockTx of %v gives %v, %v", key, locked, err)
		}
		if pgtest.QueryValue[bool](t, pool, "SELECT pg_try_advisory_lock("+arguments+")") {
			t.Errorf("the key %v is not that of pg_try_advisory_lock(%s)", key, arguments)
		}
		refused(t, s, key)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		req := grant(t, s, key, time.Minute)
		if pgtest.QueryValue[bool](t, pool, "SELECT pg_try_advisory_lock("+arguments+")") || !release(t, s, req) {
			t.Errorf("the hold of %v is not that of pg_try_advisory_lock(%s)", key, arguments)
		}
	}
}
