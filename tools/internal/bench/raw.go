//go:build unix

package bench

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A rawPair is a pair of plain commands, which do not wait: they are for names that are free.
type rawPair struct {
	acquire func(ctx context.Context, name, token string) error
	release func(ctx context.Context, name, token string) error
	close   func() error
}

var rawTokens atomic.Uint64

// Acquire makes the tokens differ at almost no cost.
func (p *rawPair) Acquire(ctx context.Context, name string) (Held, error) {
	token := "0123456789ab" + strconv.FormatUint(1e9+rawTokens.Add(1), 10)
	release := func(ctx context.Context) error { return p.release(ctx, name, token) }
	return releaseFunc(release), p.acquire(ctx, name, token)
}

func (p *rawPair) Close() error { return p.close() }

const rawRelease = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`

// rawGrant sets the key as SET NX PX does, and creates a fencing token with it: above the last one,
// and above those of a counter that was lost. A token that is not created in one step with the
// grant may be out of order.
const rawGrant = `
local last, now = tonumber(redis.call("GET", KEYS[2])), redis.call("TIME")
local token = math.max((last or 0) + 1, now[1] * 1000000 + now[2])
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
  return 0
end
redis.call("SET", KEYS[2], string.format("%.0f", token))
return token`

// RedisRaw lists the plain commands through the available clients: SET NX PX or rawGrant, then
// rawRelease. With go-redis each call has a connection, with rueidis they share pipelines.
func RedisRaw() []Contender {
	return []Contender{
		{Name: "raw, go-redis", Open: openRawGoredis(false)},
		{Name: "raw with a token, go-redis", Open: openRawGoredis(true)},
		{Name: "raw, rueidis", Open: openRawRueidis},
	}
}

func openRawGoredis(withToken bool) func(o Options) (Locker, error) {
	return func(o Options) (Locker, error) {
		client := newRedis(o.Servers[0])
		release, err := client.ScriptLoad(context.Background(), rawRelease).Result()
		grant, grantErr := client.ScriptLoad(context.Background(), rawGrant).Result()
		if err := errors.Join(err, grantErr); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &rawPair{
			acquire: func(ctx context.Context, name, token string) error {
				if !withToken {
					return client.SetArgs(ctx, name, token, redis.SetArgs{Mode: "NX", TTL: o.TTL}).Err()
				}
				fence, err := client.EvalSha(ctx, grant, []string{name, "counter"}, token, o.TTL.Milliseconds()).Int64()
				if err == nil && fence == 0 {
					err = errHeld
				}
				return err
			},
			release: func(ctx context.Context, name, token string) error {
				return client.EvalSha(ctx, release, []string{name}, token).Err()
			},
			close: client.Close,
		}, nil
	}
}

func openRawRueidis(o Options) (Locker, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: o.Servers})
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
