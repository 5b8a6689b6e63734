//go:build unix

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	rueidislib "github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// newRedis returns a go-redis client with the settings that every contender on go-redis uses. With
// ContextTimeoutEnabled the client obeys the time-outs of the libraries; without it, a server that
// hangs costs 3 s each time.
func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: poolSize, ContextTimeoutEnabled: true})
}

// Redis lists the libraries for one Redis server, set up as well as they can be.
func Redis() []Contender {
	return []Contender{
		{
			Name: "Holdfast, Redis", Waits: true,
			Open: func(o Options) (Locker, error) {
				client := newRedis(o.Servers[0])
				return openHoldfast(redisstore.New(client, nil), o.TTL, client.Close), nil
			},
		},
		{Name: "rueidislock", Waits: true, Open: openRueidislock},
		{Name: "redislock", Waits: true, Open: openRedislock},
		{Name: "redsync", Waits: true, Open: openRedsync},
	}
}

// Quorum lists the libraries for a majority of independent Redis servers.
func Quorum() []Contender {
	return []Contender{
		{
			Name: "Holdfast, quorum", Waits: true,
			Open: func(o Options) (Locker, error) {
				var nodes []driver.Store
				var closers []func() error
				for _, addr := range o.Servers {
					client := newRedis(addr)
					nodes, closers = append(nodes, redisstore.New(client, nil)), append(closers, client.Close)
				}
				return openHoldfast(quorumstore.New(nodes, &quorumstore.Options{CloseStores: true}), o.TTL, closers...), nil
			},
		},
		{Name: "redsync, 5 nodes", Waits: true, Open: openRedsync},
	}
}

// openRueidislock sets what suits a single server. With the defaults, rueidislock takes three keys
// for each lock, and notifies every holder of its own changes. TryNextAfter is the time-out of an
// attempt. An attempt that takes longer than its default of 20 ms, on a busy server, is undone, and
// its caller then waits for a notification of the undone change, which NoLoopTracking suppresses.
func openRueidislock(o Options) (Locker, error) {
	locker, err := rueidislib.NewLocker(rueidislib.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: o.Servers},
		KeyValidity:  o.TTL, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return funcLocker{func(ctx context.Context, name string) (Held, error) {
		_, release, err := locker.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		// rueidislock does not report whether the release succeeded.
		return releaseFunc(func(context.Context) error { release(); return nil }), nil
	}, func() error { locker.Close(); return nil }}, nil
}

// openRedislock has waiters try every 100 ms, as in its README. It gives the attempts a distant
// deadline if the context has none: otherwise redislock would stop after the TTL.
func openRedislock(o Options) (Locker, error) {
	client := newRedis(o.Servers[0])
	locks := redislock.New(client)
	return funcLocker{func(ctx context.Context, name string) (Held, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Hour)
			defer cancel()
		}
		lock, err := locks.Obtain(ctx, name, o.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return releaseFunc(lock.Release), nil
	}, client.Close}, nil
}

// openRedsync has waiters try every 50 to 250 ms, its default, without end.
func openRedsync(o Options) (Locker, error) {
	var pools []redsyncredis.Pool
	var closers []func() error
	for _, addr := range o.Servers {
		client := newRedis(addr)
		pools, closers = append(pools, goredis.NewPool(client)), append(closers, client.Close)
	}
	const endless = 1 << 30
	locks := redsync.New(pools...)
	return funcLocker{func(ctx context.Context, name string) (Held, error) {
		mutex := locks.NewMutex(name, redsync.WithExpiry(o.TTL), redsync.WithTries(endless))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return releaseFunc(func(ctx context.Context) error {
			ok, err := mutex.UnlockContext(ctx)
			if err == nil && !ok {
				return errors.New("the lock was lost")
			}
			return err
		}), nil
	}, closeAll(closers...)}, nil
}
