//go:build unix

package lockers

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"net"

	"github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
)

// PostgresLease lists the ways to lock by a row that expires.
func PostgresLease() []Contender {
	return append([]Contender{
		holdfastPostgres("Holdfast, table", "pgstore.New on a pgxpool, all defaults",
			func(pool *pgxpool.Pool) (driver.Store, func() error) { return pgstore.New(pool, nil), nil }),
		holdfastPostgres("Holdfast, table, durable", "pgstore.New with DurableRelease",
			func(pool *pgxpool.Pool) (driver.Store, func() error) {
				return pgstore.New(pool, &pgstore.Options{DurableRelease: true}), nil
			}),
		holdfastPostgres("Holdfast, table, database/sql", "pgstore.NewDB on the same pool",
			func(pool *pgxpool.Pool) (driver.Store, func() error) {
				db := stdlib.OpenDBFromPool(pool)
				return pgstore.NewDB(db, nil), db.Close
			}),
	}, postgresRaw()...)
}

// PostgresAdvisory lists the ways to lock by advisory locks.
func PostgresAdvisory() []Contender {
	ours := holdfastPostgres("Holdfast, advisory", "advisory.New on a pgxpool, all defaults",
		func(pool *pgxpool.Pool) (driver.Store, func() error) { return advisory.New(pool, nil), nil })
	return []Contender{ours, {
		Name: "go-pglock", Role: Rival, Open: openPglock, Against: ours.Name,
		Settings: "allisson/go-pglock v3 on database/sql with pgx: a connection for each lock",
	}}
}

// newPool returns a pool with the settings that every contender uses.
func newPool(o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.Servers[0])
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return measure.CountTraffic(dial(ctx, network, addr))
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// holdfastPostgres is Holdfast on a store that open returns, with a function to call after the
// store is closed, or nil.
func holdfastPostgres(name, settings string, open func(*pgxpool.Pool) (driver.Store, func() error)) Contender {
	return Contender{
		Name: name, Settings: settings, Role: Ours, Renews: true,
		Open: func(o Options) (measure.Locker, error) {
			pool, err := newPool(o)
			if err != nil {
				return nil, err
			}
			store, after := open(pool)
			return openHoldfast(store, o.TTL, func() error {
				defer pool.Close()
				if after != nil {
					return after()
				}
				return nil
			}), nil
		},
	}
}

func openPglock(o Options) (measure.Locker, error) {
	db, err := sql.Open("pgx", o.Servers[0])
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
		lock, err := pglock.NewLock(ctx, advisoryKey(name), db)
		if err != nil {
			return nil, err
		}
		return releaseFunc(func(ctx context.Context) error {
			return errors.Join(lock.Unlock(ctx), lock.Close())
		}), lock.WaitAndLock(ctx)
	}, db.Close}, nil
}

// advisoryKey returns the number of the advisory lock for a name.
func advisoryKey(name string) int64 {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return int64(hash.Sum64())
}
