//go:build unix

package contend

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

func redsyncGoredis(name, settings string, options ...redsync.Option) Kind {
	return Kind{
		Name: name, Settings: settings, Role: Rival, Keys: keyOf(""),
		Open: func(o Options) (Contender, error) {
			var clients []*redis.Client
			var pools []redsyncredis.Pool
			for _, addr := range o.Servers {
				client := newRedis(addr)
				clients = append(clients, client)
				pools = append(pools, goredis.NewPool(client))
			}
			return newRedsync(o.TTL, pools, options, func() error { return closeAll(clients) }), nil
		},
	}
}

func redsyncRueidis(name, settings string) Kind {
	return Kind{
		Name: name, Settings: settings, Role: Rival, Keys: keyOf(""),
		Open: func(o Options) (Contender, error) {
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: o.Servers})
			if err != nil {
				return nil, err
			}
			pools := []redsyncredis.Pool{redsyncrueidis.NewPool(rueidiscompat.NewAdapter(client))}
			return newRedsync(o.TTL, pools, nil, func() error { client.Close(); return nil }), nil
		},
	}
}

type redsyncClient struct {
	locks   *redsync.Redsync
	options []redsync.Option
	close   func() error
}

func newRedsync(ttl time.Duration, pools []redsyncredis.Pool, options []redsync.Option, close func() error) *redsyncClient {
	const endless = 1 << 30
	options = append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(endless)}, options...)
	return &redsyncClient{locks: redsync.New(pools...), options: options, close: close}
}

func (c *redsyncClient) Acquire(ctx context.Context, name string) (Held, error) {
	mutex := c.locks.NewMutex(name, c.options...)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{mutex}, nil
}

func (c *redsyncClient) Close() error { return c.close() }

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error { return confirmed(h.UnlockContext(ctx)) }

// Extend takes no TTL in redsync: it is that of the mutex.
func (h redsyncHeld) Extend(ctx context.Context, _ time.Duration) error {
	return confirmed(h.ExtendContext(ctx))
}

func confirmed(ok bool, err error) error {
	if err == nil && !ok {
		return errLost
	}
	return err
}
