//go:build unix

package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/redisstore"
)

const bound = 20 * time.Second

// connect returns a client of package holdfast that reaches Redis at addr.
func connect(t *testing.T, addr string) *holdfast.Client {
	t.Helper()
	return locksOf(t, redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}), nil)
}

// locksOf returns a client of package holdfast over a client of Redis, which ends with the test.
func locksOf(t *testing.T, client redis.UniversalClient, opts *redisstore.Options) *holdfast.Client {
	t.Helper()
	store := redisstore.New(client, opts)
	locks := holdfast.New(store, nil)
	t.Cleanup(func() {
		_ = locks.Close() // What it reports is the test's own doing.
		_ = store.Close()
		_ = client.Close()
	})
	return locks
}

// eventually returns when done reports true.
var eventually = storecheck.Eventually
