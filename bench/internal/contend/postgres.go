//go:build unix

package contend

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"time"

	"github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore"
)

// PostgresPlain is the table of those who write the statements themselves.
const PostgresPlain = `CREATE TABLE plain (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
	acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`

// PostgresLease lists the ways to lock by a row that expires.
func PostgresLease() []Kind {
	return []Kind{
		holdfastPostgres("Holdfast, table", "pgstore.New on a pgxpool, all defaults", func(pool *pgxpool.Pool) (driver.Store, func() error) {
			return pgstore.New(pool, nil), nil
		}),
		holdfastPostgres("Holdfast, table, durable", "pgstore.New with DurableRelease", func(pool *pgxpool.Pool) (driver.Store, func() error) {
			return pgstore.New(pool, &pgstore.Options{DurableRelease: true}), nil
		}),
		holdfastPostgres("Holdfast, table, database/sql", "pgstore.NewDB on the same pool", func(pool *pgxpool.Pool) (driver.Store, func() error) {
			db := stdlib.OpenDBFromPool(pool)
			return pgstore.NewDB(db, nil), db.Close
		}),
		{Name: "raw upsert, pgxpool", Settings: "INSERT … ON CONFLICT DO UPDATE … WHERE expired RETURNING, then DELETE by name and owner", Role: Raw, Open: openUpsert},
		{Name: "raw upsert, database/sql", Settings: "the same through database/sql on pgx", Role: Raw, Open: openUpsertSQL},
		{Name: "raw delete + insert", Settings: "the form of River's leader election: DELETE of what has expired and INSERT … ON CONFLICT DO NOTHING " +
			"in one transaction, then DELETE (River's own table is UNLOGGED, which forgets it in a crash; this one is not)", Role: Raw, Open: openDeleteInsert},
	}
}

// PostgresAdvisory lists the ways to lock by advisory locks.
func PostgresAdvisory() []Kind {
	return []Kind{
		holdfastPostgres("Holdfast, advisory", "pgstore.NewAdvisory on a pgxpool, all defaults", func(pool *pgxpool.Pool) (driver.Store, func() error) {
			return pgstore.NewAdvisory(pool, nil), nil
		}),
		{Name: "go-pglock", Settings: "allisson/go-pglock v3 on database/sql with pgx: a connection for each lock", Role: Rival, Open: openPglock},
	}
}

// PostgresAdvisoryRaw lists the plain advisory functions.
func PostgresAdvisoryRaw() []Kind {
	return []Kind{{Name: "raw try + unlock", Settings: "pg_try_advisory_lock and pg_advisory_unlock on one connection, one caller at a time", Role: Raw, Open: openRawAdvisory}}
}

// newPool returns a pool as every contender uses it.
func newPool(o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.Servers[0])
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	return pgxpool.NewWithConfig(context.Background(), config)
}

func holdfastPostgres(name, settings string, open func(pool *pgxpool.Pool) (driver.Store, func() error)) Kind {
	return Kind{
		Name: name, Settings: settings, Role: Ours, Renews: true,
		Open: func(o Options) (Contender, error) {
			pool, err := newPool(o)
			if err != nil {
				return nil, err
			}
			store, after := open(pool)
			return newHoldfast(store, o.TTL, func() error {
				var err error
				if after != nil {
					err = after()
				}
				pool.Close()
				return err
			}), nil
		},
	}
}

func openPglock(o Options) (Contender, error) {
	db, err := sql.Open("pgx", o.Servers[0])
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return pglockClient{db}, nil
}

type pglockClient struct{ *sql.DB }

func (c pglockClient) Acquire(ctx context.Context, name string) (Held, error) {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	lock, err := pglock.NewLock(ctx, int64(hash.Sum64()), c.DB)
	if err != nil {
		return nil, err
	}
	return &pglockHeld{lock}, lock.WaitAndLock(ctx)
}

type pglockHeld struct{ pglock.Lock }

func (h *pglockHeld) Release(ctx context.Context) error {
	return errors.Join(h.Unlock(ctx), h.Close())
}

// micros is a TTL as the statements want it.
func micros(ttl time.Duration) int64 { return ttl.Microseconds() }
