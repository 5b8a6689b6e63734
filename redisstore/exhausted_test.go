//go:build unix

package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/redisstore"
)

// TestRenewalsOfAnExhaustedPool: a lock outlives its TTL twice while other commands have
// all connections of the client's pool, beside acquisitions that wait for one. Afterwards all goes
// on, and renewals take the connections of the pool again.
func TestRenewalsOfAnExhaustedPool(t *testing.T) {
	t.Parallel()
	const size = 2
	for name, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr, PoolSize: size, ContextTimeoutEnabled: true})
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: servers.StartRedisCluster(t).Addrs(), PoolSize: size, ContextTimeoutEnabled: true,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			store := redisstore.New(client, nil)
			renewed := make(chan struct{}, 1024)
			locks := holdfast.New(store, &holdfast.Config{Hooks: holdfast.Hooks{
				Event: func(_ context.Context, e holdfast.Event) {
					if e.Kind == holdfast.EventRenewed {
						renewed <- struct{}{}
					}
				},
			}})
			t.Cleanup(func() { _ = errors.Join(locks.Close(), store.Close(), client.Close()) })
			const ttl = 2 * time.Second
			lock, err := locks.Acquire(t.Context(), "held", &holdfast.Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			giveBack := takePool(t, client, "lock:held")
			for i := range 3 * size {
				go func() {
					if other, err := locks.TryAcquire(t.Context(), fmt.Sprint("other/", i), nil); err == nil {
						_ = other.Release()
					}
				}()
			}
			for began := time.Now(); time.Since(began) < 2*ttl && lock.Err() == nil; {
				select {
				case <-lock.Context().Done():
				case <-renewed:
				}
			}
			if err := lock.Err(); err != nil {
				t.Errorf("lost: %v", err)
			}
			giveBack()
			pipelines := func() uint32 {
				for range 2 { // The first one may have begun before.
					select {
					case <-renewed:
					case <-lock.Context().Done():
					}
				}
				pool := client.PoolStats().PipelineStats
				return pool.Hits + pool.Misses
			}
			if _, ok := client.(*redis.Client); ok && lock.Err() == nil {
				before := pipelines()
				if after := pipelines(); before == 0 || after != before {
					t.Errorf("%d pipelines while the pool was used up, and %d afterwards", before, after-before)
				}
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// takePool takes all connections of the pool to the server of a key.
func takePool(t *testing.T, client redis.UniversalClient, key string) (giveBack func()) {
	t.Helper()
	node, ok := client.(*redis.Client)
	if cluster, isCluster := client.(*redis.ClusterClient); isCluster {
		var err error
		if node, err = cluster.MasterForKey(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	} else if !ok {
		t.Fatalf("a client of type %T", client)
	}
	var taken []*redis.Conn
	giveBack = func() {
		for _, c := range taken {
			_ = c.Close()
		}
		taken = nil
	}
	t.Cleanup(giveBack)
	for len(taken) < node.Options().PoolSize {
		c := node.Conn()
		err := c.Ping(t.Context()).Err()
		if err == nil {
			taken = append(taken, c)
		} else if _ = c.Close(); !errors.Is(err, redis.ErrPoolExhausted) { // Else a renewal has one for a moment.
			t.Fatal(err)
		}
	}
	return giveBack
}
