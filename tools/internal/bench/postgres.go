//go:build unix

package bench

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"sync"

	"github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// postgresPlain creates the table of the plain statements.
const postgresPlain = `CREATE TABLE plain (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
	acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`

const (
	plainUpsert = `INSERT INTO plain VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond', '{}')
		ON CONFLICT (lock_name) DO UPDATE SET holder_id = excluded.holder_id, acquired_at = excluded.acquired_at,
		expires_at = excluded.expires_at WHERE plain.expires_at <= clock_timestamp() RETURNING lock_name`
	plainDelete = "DELETE FROM plain WHERE lock_name = $1 AND holder_id = $2"
)

// PostgresLease lists the ways to lock by a row that expires.
func PostgresLease() []Contender {
	return []Contender{
		holdfastPostgres("Holdfast, table", func(pool *pgxpool.Pool) driver.Store { return pgstore.New(pool, nil) }),
		{Name: "raw upsert, pgxpool", Open: openUpsert},
	}
}

// PostgresAdvisory lists the ways to lock by advisory locks.
func PostgresAdvisory() []Contender {
	return []Contender{
		holdfastPostgres("Holdfast, advisory", func(pool *pgxpool.Pool) driver.Store { return advisory.New(pool, nil) }),
		{Name: "go-pglock", Waits: true, Open: openPglock},
		{Name: "raw try + unlock", Open: openRawAdvisory},
	}
}

// newPool returns a pool with the settings that every contender uses.
func newPool(o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.Servers[0])
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	return pgxpool.NewWithConfig(context.Background(), config)
}

func holdfastPostgres(name string, open func(*pgxpool.Pool) driver.Store) Contender {
	return Contender{
		Name: name, Waits: true,
		Open: func(o Options) (Locker, error) {
			pool, err := newPool(o)
			if err != nil {
				return nil, err
			}
			return openHoldfast(open(pool), o.TTL, func() error { pool.Close(); return nil }), nil
		},
	}
}

func openUpsert(o Options) (Locker, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	return &rawPair{
		acquire: func(ctx context.Context, name, token string) error {
			var taken string
			return pool.QueryRow(ctx, plainUpsert, name, token, o.TTL.Microseconds()).Scan(&taken)
		},
		release: func(ctx context.Context, name, token string) error {
			_, err := pool.Exec(ctx, plainDelete, name, token)
			return err
		},
		close: func() error { pool.Close(); return nil },
	}, nil
}

func openPglock(o Options) (Locker, error) {
	db, err := sql.Open("pgx", o.Servers[0])
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return funcLocker{func(ctx context.Context, name string) (Held, error) {
		lock, err := pglock.NewLock(ctx, advisoryKey(name), db)
		if err != nil {
			return nil, err
		}
		return releaseFunc(func(ctx context.Context) error {
			return errors.Join(lock.Unlock(ctx), lock.Close())
		}), lock.WaitAndLock(ctx)
	}, db.Close}, nil
}

// openRawAdvisory uses one connection for all locks, as a program with many locks must.
func openRawAdvisory(o Options) (Locker, error) {
	conn, err := pgx.Connect(context.Background(), o.Servers[0])
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	call := func(function string) func(ctx context.Context, name, token string) error {
		return func(ctx context.Context, name, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			var ok bool
			err := conn.QueryRow(ctx, "SELECT "+function+"($1)", advisoryKey(name)).Scan(&ok)
			if err == nil && !ok {
				return errHeld
			}
			return err
		}
	}
	return &rawPair{
		acquire: call("pg_try_advisory_lock"),
		release: call("pg_advisory_unlock"),
		close:   func() error { return conn.Close(context.Background()) },
	}, nil
}

// advisoryKey returns the number of the advisory lock for a name.
func advisoryKey(name string) int64 {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return int64(hash.Sum64())
}
