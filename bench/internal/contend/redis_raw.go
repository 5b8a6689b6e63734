//go:build unix

package contend

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// rawRelease is the second command of the raw pair: the two that no lock on
// Redis can do without. The pair does not wait: it is for names that are free.
const rawRelease = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`

// rawGrant sets the key as the first command of the raw pair does, and makes a
// fencing token with it: above the last one, and above those of a counter that was
// lost. A token that is not made in one step with the grant may be out of order.
const rawGrant = `
local last, now = tonumber(redis.call("GET", KEYS[2])), redis.call("TIME")
local token = math.max((last or 0) + 1, now[1] * 1000000 + now[2])
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
  return 0
end
redis.call("SET", KEYS[2], string.format("%.0f", token))
return token`

// RedisRaw lists the plain commands through the clients that there are.
func RedisRaw() []Kind {
	const pair = "SET NX PX, then EVALSHA of compare and delete"
	return []Kind{
		{Name: "raw, go-redis pool", Settings: pair + "; a connection for each call under way", Role: Raw, Open: openRawPool},
		{Name: "raw with a token, go-redis pool", Settings: "EVALSHA of SET NX PX with a counter that falls back on the clock, then EVALSHA of compare and delete",
			Role: Raw, Open: openRawToken},
		{Name: "raw, go-redis AutoPipeline", Settings: pair + "; calls share pipelines (experimental in go-redis)", Role: Raw, Open: openRawAuto},
		{Name: "raw, rueidis", Settings: pair + "; calls share pipelines", Role: Raw, Open: openRawRueidis},
	}
}

var errHeld = errors.New("the name is held")

// rawTokens makes the values of the raw pairs differ, at next to no cost.
var rawTokens atomic.Uint64

func rawToken() string { return "0123456789ab" + strconv.FormatUint(1e9+rawTokens.Add(1), 10) }

func openRawPool(o Options) (Contender, error) {
	client := newRedis(o.Servers[0])
	return newRawGoredis(client, o.TTL, client.Close)
}

func openRawToken(o Options) (Contender, error) {
	client := newRedis(o.Servers[0])
	raw, err := newRawGoredis(client, o.TTL, client.Close)
	if err != nil {
		return nil, err
	}
	grant, err := client.ScriptLoad(context.Background(), rawGrant).Result()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &rawWithToken{raw.(*rawGoredis), grant}, nil
}

func openRawAuto(o Options) (Contender, error) {
	client := newRedis(o.Servers[0])
	auto, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return newRawGoredis(auto, o.TTL, func() error { return errors.Join(auto.Close(), client.Close()) })
}

type rawGoredis struct {
	redis.Cmdable
	ttl   time.Duration
	sha   string
	close func() error
}

func newRawGoredis(client redis.Cmdable, ttl time.Duration, close func() error) (Contender, error) {
	sha, err := client.ScriptLoad(context.Background(), rawRelease).Result()
	if err != nil {
		return nil, errors.Join(err, close())
	}
	return &rawGoredis{Cmdable: client, ttl: ttl, sha: sha, close: close}, nil
}

func (c *rawGoredis) Acquire(ctx context.Context, name string) (Held, error) {
	h := &rawGoredisHeld{c: c, name: name, token: rawToken()}
	return h, c.SetArgs(ctx, name, h.token, redis.SetArgs{Mode: "NX", TTL: c.ttl}).Err()
}

func (c *rawGoredis) Close() error { return c.close() }

type rawGoredisHeld struct {
	c           *rawGoredis
	name, token string
}

func (h *rawGoredisHeld) Release(ctx context.Context) error {
	return h.c.EvalSha(ctx, h.c.sha, []string{h.name}, h.token).Err()
}

// A rawWithToken is the raw pair, of which the first command is a script.
type rawWithToken struct {
	*rawGoredis
	grant string // its hash
}

func (c *rawWithToken) Acquire(ctx context.Context, name string) (Held, error) {
	h := &rawGoredisHeld{c: c.rawGoredis, name: name, token: rawToken()}
	fence, err := c.EvalSha(ctx, c.grant, []string{name, "counter"}, h.token, c.ttl.Milliseconds()).Int64()
	if err == nil && fence == 0 {
		err = errHeld
	}
	return h, err
}

func openRawRueidis(o Options) (Contender, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: o.Servers})
	if err != nil {
		return nil, err
	}
	return &rawRueidis{client: client, ttl: o.TTL, script: rueidis.NewLuaScript(rawRelease)}, nil
}

type rawRueidis struct {
	client rueidis.Client
	ttl    time.Duration
	script *rueidis.Lua
}

func (c *rawRueidis) Acquire(ctx context.Context, name string) (Held, error) {
	h := &rawRueidisHeld{c: c, name: name, token: rawToken()}
	set := c.client.B().Set().Key(name).Value(h.token).Nx().Px(c.ttl).Build()
	if err := c.client.Do(ctx, set).Error(); rueidis.IsRedisNil(err) {
		return nil, errHeld
	} else if err != nil {
		return nil, err
	}
	return h, nil
}

func (c *rawRueidis) Close() error {
	c.client.Close()
	return nil
}

type rawRueidisHeld struct {
	c           *rawRueidis
	name, token string
}

func (h *rawRueidisHeld) Release(ctx context.Context) error {
	return h.c.script.Exec(ctx, h.c.client, []string{h.name}, []string{h.token}).Error()
}
