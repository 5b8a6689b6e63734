//go:build unix

package contend

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func redislockEvery(name, settings string, pause time.Duration) Kind {
	return Kind{
		Name: name, Settings: settings, Role: Rival, Keys: keyOf(""),
		Open: func(o Options) (Contender, error) {
			client := newRedis(o.Servers[0])
			return &redislockClient{client: client, locks: redislock.New(client), ttl: o.TTL, pause: pause}, nil
		},
	}
}

type redislockClient struct {
	client *redis.Client
	locks  *redislock.Client
	ttl    time.Duration
	pause  time.Duration
}

// Acquire gives the attempts a far deadline if ctx has none: redislock would
// give up after the TTL.
func (c *redislockClient) Acquire(ctx context.Context, name string) (Held, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Hour)
		defer cancel()
	}
	lock, err := c.locks.Obtain(ctx, name, c.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(c.pause)})
	if err != nil {
		return nil, err
	}
	return redislockHeld{lock}, nil
}

func (c *redislockClient) Close() error { return c.client.Close() }

type redislockHeld struct{ *redislock.Lock }
