//go:build unix

package lockers

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/internal/measure"
)

// A rawPair is a pair of plain commands, which do not wait: they are for names that are free.
type rawPair struct {
	acquire func(ctx context.Context, name, token string) error
	release func(ctx context.Context, name, token string) error
	close   func() error
}

var rawTokens atomic.Uint64

// Acquire makes the tokens differ at almost no cost.
func (p *rawPair) Acquire(ctx context.Context, name string) (measure.Held, error) {
	token := "0123456789ab" + strconv.FormatUint(1e9+rawTokens.Add(1), 10)
	release := func(ctx context.Context) error { return p.release(ctx, name, token) }
	return releaseFunc(release), p.acquire(ctx, name, token)
}

func (p *rawPair) Close() error { return p.close() }

const (
	rawSet     = "SET NX PX, then EVALSHA of compare and delete"
	rawRelease = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`
)

// rawGrant sets the key as SET NX PX does, and creates a fencing token with it: above the last
// one, and above those of a counter that was lost. A token that is not created in one step with
// the grant may be out of order.
const rawGrant = `
local last, now = tonumber(redis.call("GET", KEYS[2])), redis.call("TIME")
local token = math.max((last or 0) + 1, now[1] * 1000000 + now[2])
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
  return 0
end
redis.call("SET", KEYS[2], string.format("%.0f", token))
return token`

// RedisRaw lists the plain commands through the available clients.
func RedisRaw() []Contender {
	return []Contender{
		{
			Name: "raw, go-redis pool", Settings: rawSet + "; a connection for each call under way", Role: Raw,
			Open: func(o Options) (measure.Locker, error) {
				client := newRedis(o.Servers[0])
				return openRawGoredis(client, o, client.Close)
			},
		},
		{
			Name: "raw with a token, go-redis pool", Role: Raw, Open: openRawToken,
			Settings: "EVALSHA of SET NX PX with a counter that falls back on the clock, then EVALSHA of compare and delete",
		},
		{
			Name: "raw, go-redis AutoPipeline", Settings: rawSet + "; calls share pipelines (experimental in go-redis)", Role: Raw,
			Open: func(o Options) (measure.Locker, error) {
				client := newRedis(o.Servers[0])
				pipeline, err := client.AutoPipeline()
				if err != nil {
					return nil, errors.Join(err, client.Close())
				}
				return openRawGoredis(pipeline, o, closeAll(pipeline.Close, client.Close))
			},
		},
		{Name: "raw, rueidis", Settings: rawSet + "; calls share pipelines", Role: Raw, Open: openRawRueidis},
	}
}

func openRawGoredis(client redis.Cmdable, o Options, closeClient func() error) (*rawPair, error) {
	sha, err := client.ScriptLoad(context.Background(), rawRelease).Result()
	if err != nil {
		return nil, errors.Join(err, closeClient())
	}
	return &rawPair{
		acquire: func(ctx context.Context, name, token string) error {
			return client.SetArgs(ctx, name, token, redis.SetArgs{Mode: "NX", TTL: o.TTL}).Err()
		},
		release: func(ctx context.Context, name, token string) error {
			return client.EvalSha(ctx, sha, []string{name}, token).Err()
		},
		close: closeClient,
	}, nil
}

func openRawToken(o Options) (measure.Locker, error) {
	client := newRedis(o.Servers[0])
	pair, err := openRawGoredis(client, o, client.Close)
	if err != nil {
		return nil, err
	}
	sha, err := client.ScriptLoad(context.Background(), rawGrant).Result()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	pair.acquire = func(ctx context.Context, name, token string) error {
		fence, err := client.EvalSha(ctx, sha, []string{name, "counter"}, token, o.TTL.Milliseconds()).Int64()
		if err == nil && fence == 0 {
			err = errHeld
		}
		return err
	}
	return pair, nil
}

func openRawRueidis(o Options) (measure.Locker, error) {
	client, err := rueidis.NewClient(rueidisOptions(o))
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(rawRelease)
	return &rawPair{
		acquire: func(ctx context.Context, name, token string) error {
			err := client.Do(ctx, client.B().Set().Key(name).Value(token).Nx().Px(o.TTL).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return errHeld
			}
			return err
		},
		release: func(ctx context.Context, name, token string) error {
			return script.Exec(ctx, client, []string{name}, []string{token}).Error()
		},
		close: func() error { client.Close(); return nil },
	}, nil
}

// PostgresPlain creates the table of the contenders that are plain statements.
const PostgresPlain = `CREATE TABLE plain (lock_name varchar(255) PRIMARY KEY, holder_id varchar(255) NOT NULL,
	acquired_at timestamptz NOT NULL, expires_at timestamptz NOT NULL, metadata jsonb)`

const (
	plainInsert = `INSERT INTO plain VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3 * interval '1 microsecond', '{}')
		ON CONFLICT (lock_name) DO `
	plainUpsert = plainInsert + `UPDATE SET holder_id = excluded.holder_id, acquired_at = excluded.acquired_at,
		expires_at = excluded.expires_at WHERE plain.expires_at <= clock_timestamp() RETURNING lock_name`
	plainInsertFree = plainInsert + `NOTHING RETURNING lock_name`
	plainExpire     = "DELETE FROM plain WHERE lock_name = $1 AND expires_at <= clock_timestamp()"
	plainDelete     = "DELETE FROM plain WHERE lock_name = $1 AND holder_id = $2"
)

func postgresRaw() []Contender {
	return []Contender{
		{
			Name: "raw upsert, pgxpool", Role: Raw, Open: openUpsert,
			Settings: "INSERT … ON CONFLICT DO UPDATE … WHERE expired RETURNING, then DELETE by name and owner",
		},
		{
			Name: "raw upsert, database/sql", Role: Raw, Open: openUpsertSQL,
			Settings: "the same through database/sql on pgx",
		},
		{
			Name: "raw delete + insert", Role: Raw, Open: openDeleteInsert,
			Settings: "the form of River's leader election: DELETE of what has expired and INSERT … ON CONFLICT " +
				"DO NOTHING in one transaction, then DELETE (River's own table is UNLOGGED, which forgets it in " +
				"a crash; this one is not)",
		},
	}
}

// PostgresPolling lists the contenders that wait by trying again.
func PostgresPolling() []Contender {
	return []Contender{{
		Name: "raw upsert, polled", Settings: "the plain upsert, tried again after 1 to 10 ms", Role: Raw,
		Open: func(o Options) (measure.Locker, error) {
			locker, err := openUpsert(o)
			if err != nil {
				return nil, err
			}
			return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
				for {
					held, err := locker.Acquire(ctx, name)
					if !errors.Is(err, pgx.ErrNoRows) {
						return held, err
					}
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(time.Millisecond + rand.N(9*time.Millisecond)):
					}
				}
			}, locker.Close}, nil
		},
	}}
}

// openPlain returns a pair that releases by plainDelete.
func openPlain(o Options, acquire func(ctx context.Context, pool *pgxpool.Pool, name, token string) error) (measure.Locker, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	return &rawPair{
		acquire: func(ctx context.Context, name, token string) error { return acquire(ctx, pool, name, token) },
		release: func(ctx context.Context, name, token string) error {
			_, err := pool.Exec(ctx, plainDelete, name, token)
			return err
		},
		close: func() error { pool.Close(); return nil },
	}, nil
}

func openUpsert(o Options) (measure.Locker, error) {
	return openPlain(o, func(ctx context.Context, pool *pgxpool.Pool, name, token string) error {
		var taken string
		return pool.QueryRow(ctx, plainUpsert, name, token, o.TTL.Microseconds()).Scan(&taken)
	})
}

func openDeleteInsert(o Options) (measure.Locker, error) {
	return openPlain(o, func(ctx context.Context, pool *pgxpool.Pool, name, token string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, plainExpire, name); err != nil {
				return err
			}
			var taken string
			return tx.QueryRow(ctx, plainInsertFree, name, token, o.TTL.Microseconds()).Scan(&taken)
		})
	})
}

func openUpsertSQL(o Options) (measure.Locker, error) {
	pool, err := newPool(o)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return &rawPair{
		acquire: func(ctx context.Context, name, token string) error {
			var taken string
			return db.QueryRowContext(ctx, plainUpsert, name, token, o.TTL.Microseconds()).Scan(&taken)
		},
		release: func(ctx context.Context, name, token string) error {
			_, err := db.ExecContext(ctx, plainDelete, name, token)
			return err
		},
		close: closeAll(db.Close, func() error { pool.Close(); return nil }),
	}, nil
}

// PostgresAdvisoryRaw lists the plain advisory functions.
func PostgresAdvisoryRaw() []Contender {
	return []Contender{{
		Name: "raw try + unlock", Role: Raw, Open: openRawAdvisory,
		Settings: "pg_try_advisory_lock and pg_advisory_unlock on one connection, one caller at a time",
	}}
}

// openRawAdvisory uses one connection for all locks, as a program with many locks must.
func openRawAdvisory(o Options) (measure.Locker, error) {
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
