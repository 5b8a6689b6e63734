//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Locks are acquired, renewed and released while other commands have all connections of the
// client's pool. The nodes of a cluster have clients of the same kind.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr, PoolSize: 2, ContextTimeoutEnabled: true})
	locks := locksOf(t, over(t, client, nil))
	for range client.Options().PoolSize {
		taken := client.Conn()
		t.Cleanup(func() { _ = taken.Close() })
		if err := taken.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
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
}
