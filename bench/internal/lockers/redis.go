//go:build unix

package lockers

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	rueidislib "github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// newRedis returns a go-redis client with the settings that every contender on go-redis
// uses. With ContextTimeoutEnabled the client obeys the time-outs of the libraries; without
// it, a server that hangs costs 3 s each time.
func newRedis(addr string) *redis.Client {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return measure.CountTraffic((&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr))
	}
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: poolSize, ContextTimeoutEnabled: true, Dialer: dial})
}

// Redis lists the libraries for one Redis server, set up as well as they can be.
func Redis() []Contender {
	return []Contender{
		holdfastRedis(),
		rueidislock("rueidislock", "KeyMajority 1, NoLoopTracking, TryNextAfter 1 s: one key, no notifications "+
			"of its own changes, and no short time-out", tuneSingleServer),
		redislockEvery("redislock", "go-redis; waiters try every 100 ms (LinearBackoff, as in its README)", 100*time.Millisecond),
		redsyncGoredis("redsync", "go-redis; waiters try every 50 to 250 ms (its default), without end"),
		{
			Name: "redsync on rueidis", Role: Rival, Keys: singleKey(""), Open: openRedsyncRueidis,
			Settings: "its adapter for rueidis, which pipelines; waiters as above",
		},
	}
}

// RedisDefaults lists the contenders that behave differently with their default settings.
func RedisDefaults() []Contender {
	return []Contender{
		holdfastUncancelable(),
		rueidislock("rueidislock, defaults", "KeyMajority 2: three keys for each lock", func(*rueidislib.LockerOption) {}),
	}
}

// RedisPolling lists the contenders that wait by trying again, set up to try often.
func RedisPolling() []Contender {
	return []Contender{
		redislockEvery("redislock, every 5 ms", "go-redis; waiters try every 5 ms (LinearBackoff)", 5*time.Millisecond),
	}
}

// Quorum lists the libraries for a majority of independent Redis servers.
func Quorum() []Contender {
	return []Contender{
		{
			Name: "Holdfast, quorum", Settings: "quorumstore over five redisstores, all defaults",
			Role: Ours, Renews: true, Open: openHoldfastQuorum,
		},
		redsyncGoredis("redsync, 5 nodes", "go-redis with ContextTimeoutEnabled"),
		redsyncGoredis("redsync, 5 nodes, fail fast", "the same WithFailFast, which may leave keys behind on slow nodes",
			redsync.WithFailFast(true)),
	}
}

func holdfastRedis() Contender {
	return Contender{
		Name: "Holdfast", Role: Ours, Renews: true, Keys: singleKey(redisstore.DefaultPrefix),
		Settings: "redisstore on go-redis, all defaults; renewal and fencing tokens are always on",
		Open: func(o Options) (measure.Locker, error) {
			client := newRedis(o.Servers[0])
			return openHoldfast(redisstore.New(client, nil), o.TTL, client.Close), nil
		},
	}
}

// holdfastUncancelable is Holdfast for callers that do not need cancellation, which the
// plain commands do not support either: go-redis ignores a context while it waits for a
// reply.
func holdfastUncancelable() Contender {
	c := holdfastRedis()
	c.Patient = true
	c.Name = "Holdfast, not cancelled"
	c.Settings = "the same, with a context that cannot be canceled, which the plain commands do not obey either"
	open := c.Open
	c.Open = func(o Options) (measure.Locker, error) {
		locker, err := open(o)
		if err != nil {
			return nil, err
		}
		return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
			return locker.Acquire(context.WithoutCancel(ctx), name)
		}, locker.Close}, nil
	}
	return c
}

func openHoldfastQuorum(o Options) (measure.Locker, error) {
	var nodes []driver.Store
	var closers []func() error
	for _, addr := range o.Servers {
		client := newRedis(addr)
		nodes, closers = append(nodes, redisstore.New(client, nil)), append(closers, client.Close)
	}
	return openHoldfast(quorumstore.New(nodes, &quorumstore.Options{CloseStores: true}), o.TTL, closers...), nil
}

// tuneSingleServer sets what suits a single server. With the defaults, rueidislock takes
// three keys for each lock, and notifies every holder of its own changes. TryNextAfter is
// the time-out of an attempt. An attempt that takes longer than its default of 20 ms, on a
// busy server, is undone, and its caller then waits for a notification of the undone
// change, which NoLoopTracking suppresses.
func tuneSingleServer(o *rueidislib.LockerOption) {
	o.KeyMajority = 1
	o.NoLoopTracking = true
	o.TryNextAfter = time.Second
}

func rueidislock(name, settings string, set func(*rueidislib.LockerOption)) Contender {
	return Contender{
		Name: name, Settings: settings, Role: Rival, Renews: true, Keys: singleKey("rueidislock:0:"),
		Open: func(o Options) (measure.Locker, error) {
			options := rueidislib.LockerOption{
				ClientOption: rueidisOptions(o),
				KeyValidity:  o.TTL,
			}
			set(&options)
			locker, err := rueidislib.NewLocker(options)
			if err != nil {
				return nil, err
			}
			return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
				_, release, err := locker.WithContext(ctx, name)
				if err != nil {
					return nil, err
				}
				// rueidislock does not report whether the release succeeded.
				return releaseFunc(func(context.Context) error { release(); return nil }), nil
			}, func() error { locker.Close(); return nil }}, nil
		},
	}
}

// rueidisOptions returns the options of a client that connects as rueidis does by itself.
func rueidisOptions(o Options) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: o.Servers,
		DialCtxFn: func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return measure.CountTraffic(dialer.DialContext(ctx, "tcp", addr))
		},
	}
}

// redislockEvery is redislock with this pause between the attempts of a waiter. If the context
// has no deadline, the attempts get a distant one: otherwise redislock would stop after the TTL.
func redislockEvery(name, settings string, pause time.Duration) Contender {
	return Contender{
		Name: name, Settings: settings, Role: Rival, Keys: singleKey(""),
		Open: func(o Options) (measure.Locker, error) {
			client := newRedis(o.Servers[0])
			locks := redislock.New(client)
			return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
				if _, bounded := ctx.Deadline(); !bounded {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Hour)
					defer cancel()
				}
				retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)}
				lock, err := locks.Obtain(ctx, name, o.TTL, retry)
				if err != nil {
					return nil, err
				}
				return releaseFunc(lock.Release), nil
			}, client.Close}, nil
		},
	}
}

func redsyncGoredis(name, settings string, options ...redsync.Option) Contender {
	return Contender{
		Name: name, Settings: settings, Role: Rival, Keys: singleKey(""),
		Open: func(o Options) (measure.Locker, error) {
			var pools []redsyncredis.Pool
			var closers []func() error
			for _, addr := range o.Servers {
				client := newRedis(addr)
				pools, closers = append(pools, goredis.NewPool(client)), append(closers, client.Close)
			}
			return openRedsync(o.TTL, pools, options, closeAll(closers...)), nil
		},
	}
}

func openRedsyncRueidis(o Options) (measure.Locker, error) {
	client, err := rueidis.NewClient(rueidisOptions(o))
	if err != nil {
		return nil, err
	}
	pools := []redsyncredis.Pool{redsyncrueidis.NewPool(rueidiscompat.NewAdapter(client))}
	return openRedsync(o.TTL, pools, nil, func() error { client.Close(); return nil }), nil
}

func openRedsync(ttl time.Duration, pools []redsyncredis.Pool, options []redsync.Option, closePools func() error) measure.Locker {
	const endless = 1 << 30
	options = append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(endless)}, options...)
	locks := redsync.New(pools...)
	return funcLocker{func(ctx context.Context, name string) (measure.Held, error) {
		mutex := locks.NewMutex(name, options...)
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return redsyncHeld{mutex}, nil
	}, closePools}
}

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error { return checkOK(h.UnlockContext(ctx)) }

// Extend ignores its TTL: redsync uses the one of the mutex.
func (h redsyncHeld) Extend(ctx context.Context, _ time.Duration) error {
	return checkOK(h.ExtendContext(ctx))
}

func checkOK(ok bool, err error) error {
	if err == nil && !ok {
		return errLost
	}
	return err
}
