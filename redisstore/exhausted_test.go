//go:build unix

package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Locks are acquired, renewed and released while other commands have all connections of the
// client's pool.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr, PoolSize: 2, ContextTimeoutEnabled: true})
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: servers.StartRedisCluster(t).Addrs(), PoolSize: 2, ContextTimeoutEnabled: true,
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t)
			locks := locksOf(t, client, nil)
			takePool(t, client, "lock:held")
			const ttl = time.Second
			lock, err := locks.Acquire(t.Context(), "held", &holdfast.Options{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-lock.Context().Done():
				t.Errorf("lost: %v", lock.Err())
			case <-time.After(2 * ttl):
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

// takePool takes all connections of the pool to the server of a key.
func takePool(t *testing.T, client redis.UniversalClient, key string) {
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
	for range node.Options().PoolSize {
		taken := node.Conn()
		t.Cleanup(func() { _ = taken.Close() })
		if err := taken.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
