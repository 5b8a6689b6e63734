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
func connect(t *testing.T, addr string, config *holdfast.Config) *holdfast.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	store := redisstore.New(client, nil)
	locks := holdfast.New(store, config)
	t.Cleanup(func() {
		_ = locks.Close() // What it reports is the test's own doing.
		_ = store.Close()
		_ = client.Close()
	})
	return locks
}

// eventually returns when done reports true.
var eventually = storecheck.Eventually
