//go:build unix

package testbed

import (
	"context"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/redisstore"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// OpenForeign opens the store of a Testbed for a client of another kind: one of the usual commands
// of Redis, or of the SQL functions of a PostgreSQL table. It returns nil for any other store.
func OpenForeign(urls []string) (torture.ForeignClient, error) {
	u, err := url.Parse(urls[0])
	if err != nil || len(urls) > 1 {
		return nil, err
	}
	switch u.Scheme {
	case "redis":
		return foreignRedis{redis.NewClient(&redis.Options{Addr: u.Host, MaxRetries: -1, ContextTimeoutEnabled: true})}, nil
	case "postgres":
		pool, err := pgxpool.New(context.Background(), urls[0])
		return foreignSQL{pool}, err
	}
	return nil, nil
}

// foreignRedis takes locks by SET NX PX.
type foreignRedis struct{ client *redis.Client }

func (c foreignRedis) Take(ctx context.Context, name, owner string, ttl time.Duration) (int64, bool, error) {
	taken, err := c.client.SetNX(ctx, redisstore.DefaultPrefix+name, owner, ttl).Result()
	return 0, taken, err
}

// freeScript deletes a lock if the owner has it.
var freeScript = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

func (c foreignRedis) Free(ctx context.Context, name, owner string) (bool, error) {
	n, err := freeScript.Eval(ctx, c.client, []string{redisstore.DefaultPrefix + name}, owner).Int()
	return n > 0, err
}

func (c foreignRedis) Close() { _ = c.client.Close() } // it has nothing to lose

// foreignSQL takes locks by the SQL functions.
type foreignSQL struct{ pool *pgxpool.Pool }

func (c foreignSQL) Take(ctx context.Context, name, owner string, ttl time.Duration) (int64, bool, error) {
	var token *int64
	err := c.pool.QueryRow(ctx, "SELECT acquire_lock_token($1::text, $2::text, $3::double precision)", name, owner, ttl.Seconds()).Scan(&token)
	if err != nil || token == nil {
		return 0, false, err
	}
	return *token, true, nil
}

func (c foreignSQL) Free(ctx context.Context, name, owner string) (freed bool, err error) {
	err = c.pool.QueryRow(ctx, "SELECT release_lock($1::text, $2::text)", name, owner).Scan(&freed)
	return freed, err
}

func (c foreignSQL) Close() { c.pool.Close() }
