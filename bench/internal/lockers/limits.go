//go:build unix

package lockers

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/redisstore"
)

// Semaphore is the contender that is measured by a program of its own, in Node.js.
const Semaphore = "redis-semaphore (npm)"

// Limited lists semaphores of n slots.
func Limited(n int) []Contender {
	return []Contender{
		holdfastWith("Holdfast", "redisstore on go-redis, all defaults; Options.Limit", &holdfast.Options{Limit: n}),
		{
			Name: "counter script", Role: Raw, Settings: "go-redis; a script that increments a counter below the limit, and DECR; waiters " +
				"try every 2 to 4 ms. No lease: a slot of a process that dies is lost",
			Open: func(o Options) (measure.Locker, error) { return openCounter(o, n), nil },
		},
		{
			Name: Semaphore, Role: Rival, Settings: "5.8 on ioredis in one process of Node.js; waiters try every 10 ms (its default)",
			Open: func(Options) (measure.Locker, error) {
				return funcLocker{func(context.Context, string) (measure.Held, error) { return nil, errors.ErrUnsupported }, closeAll()}, nil
			},
		},
	}
}

// Readers lists what readers of one name are compared with.
func Readers() []Contender {
	return []Contender{
		holdfastWith("Holdfast, shared", "Options.Shared, all on one name", &holdfast.Options{Shared: true}),
		holdfastWith("Holdfast, exclusive", "the defaults, on names of their own", nil),
	}
}

// holdfastWith is Holdfast on Redis with options.
func holdfastWith(name, settings string, options *holdfast.Options) Contender {
	return Contender{
		Name: name, Role: Ours, Renews: true, Settings: settings,
		Open: func(o Options) (measure.Locker, error) {
			client := newRedis(o.Servers[0])
			store := redisstore.New(client, nil)
			locks := holdfast.New(store, &holdfast.Config{Options: holdfast.Options{TTL: o.TTL}})
			return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
				lock, err := locks.Acquire(ctx, name, options)
				if err != nil {
					return nil, err
				}
				return releaseFunc(func(context.Context) error { return lock.Release() }), nil
			}, closeAll(locks.Close, store.Close, client.Close)}, nil
		},
	}
}

// openCounter returns a semaphore that is a counter.
func openCounter(o Options, n int) measure.Locker {
	client := newRedis(o.Servers[0])
	script := redis.NewScript(`local n = tonumber(redis.call("GET", KEYS[1]) or "0")
if n >= tonumber(ARGV[1]) then return 0 end
redis.call("INCR", KEYS[1])
return 1`)
	acquire := func(ctx context.Context, name string) (measure.Held, error) {
		for {
			granted, err := script.Run(ctx, client, []string{name}, strconv.Itoa(n)).Int()
			switch {
			case err != nil:
				return nil, err
			case granted == 1:
				return releaseFunc(func(ctx context.Context) error { return client.Decr(ctx, name).Err() }), nil
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(2*time.Millisecond + rand.N(2*time.Millisecond)):
			}
		}
	}
	return funcLocker{acquire, sync.OnceValue(client.Close)}
}
