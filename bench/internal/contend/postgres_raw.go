//go:build unix

package contend

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	plainUpsert = `INSERT INTO plain VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond', '{}')
		ON CONFLICT (lock_name) DO UPDATE SET holder_id = excluded.holder_id, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
		WHERE plain.expires_at <= clock_timestamp() RETURNING lock_name`
	plainExpire = "DELETE FROM plain WHERE lock_name = $1 AND expires_at <= clock_timestamp()"
	plainInsert = `INSERT INTO plain VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond', '{}')
		ON CONFLICT (lock_name) DO NOTHING RETURNING lock_name`
	plainDelete = "DELETE FROM plain WHERE lock_name = $1 AND holder_id = $2"
)

// pgRaw is a pair of plain statements.
type pgRaw struct {
	acquire func(ctx context.Context, name, token string) error
	release func(ctx context.Context, name, token string) error
	close   func() error
}

func (c *pgRaw) Acquire(ctx context.Context, name string) (Held, error) {
	h := &pgRawHeld{c: c, name: name, token: rawToken()}
	return h, c.acquire(ctx, name, h.token)
}

func (c *pgRaw) Close() error { return c.close() }

type pgRawHeld struct {
	c           *pgRaw
	name, token string
}

func (h *pgRawHeld) Release(ctx context.Context) error { return h.c.release(ctx, h.name, h.token) }

func openUpsert(o Options) (Contender, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	return &pgRaw{
		acquire: func(ctx context.Context, name, token string) error {
			var taken string
			return pool.QueryRow(ctx, plainUpsert, name, token, micros(o.TTL)).Scan(&taken)
		},
		release: deleteBy(pool),
		close:   func() error { pool.Close(); return nil },
	}, nil
}

// PostgresPolling lists those that wait by trying again.
func PostgresPolling() []Kind {
	return []Kind{{Name: "raw upsert, polled", Settings: "the plain upsert, tried again after 1 to 10 ms", Role: Raw, Open: openPolled}}
}

func openPolled(o Options) (Contender, error) {
	c, err := openUpsert(o)
	return polled{c}, err
}

// polled is a contender that does not wait by itself.
type polled struct{ Contender }

func (c polled) Acquire(ctx context.Context, name string) (Held, error) {
	for {
		held, err := c.Contender.Acquire(ctx, name)
		if !errors.Is(err, pgx.ErrNoRows) {
			return held, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond + rand.N(9*time.Millisecond)):
		}
	}
}

func openUpsertSQL(o Options) (Contender, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return &pgRaw{
		acquire: func(ctx context.Context, name, token string) error {
			var taken string
			return db.QueryRowContext(ctx, plainUpsert, name, token, micros(o.TTL)).Scan(&taken)
		},
		release: func(ctx context.Context, name, token string) error {
			_, err := db.ExecContext(ctx, plainDelete, name, token)
			return err
		},
		close: func() error { return closeSQL(db, pool) },
	}, nil
}

func closeSQL(db *sql.DB, pool *pgxpool.Pool) error {
	err := db.Close()
	pool.Close()
	return err
}

func openDeleteInsert(o Options) (Contender, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	return &pgRaw{
		acquire: func(ctx context.Context, name, token string) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, plainExpire, name); err != nil {
					return err
				}
				var taken string
				return tx.QueryRow(ctx, plainInsert, name, token, micros(o.TTL)).Scan(&taken)
			})
		},
		release: deleteBy(pool),
		close:   func() error { pool.Close(); return nil },
	}, nil
}

func deleteBy(pool *pgxpool.Pool) func(ctx context.Context, name, token string) error {
	return func(ctx context.Context, name, token string) error {
		_, err := pool.Exec(ctx, plainDelete, name, token)
		return err
	}
}

// openRawAdvisory uses one connection for all, as those must who want to hold
// many locks.
func openRawAdvisory(o Options) (Contender, error) {
	conn, err := pgx.Connect(context.Background(), o.Servers[0])
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	ask := func(function string) func(ctx context.Context, name, token string) error {
		return func(ctx context.Context, name, _ string) error {
			hash := fnv.New64a()
			hash.Write([]byte(name))
			mu.Lock()
			defer mu.Unlock()
			var ok bool
			err := conn.QueryRow(ctx, "SELECT "+function+"($1)", int64(hash.Sum64())).Scan(&ok)
			if err == nil && !ok {
				return errHeld
			}
			return err
		}
	}
	return &pgRaw{
		acquire: ask("pg_try_advisory_lock"),
		release: ask("pg_advisory_unlock"),
		close:   func() error { return conn.Close(context.Background()) },
	}, nil
}
