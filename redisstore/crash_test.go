//go:build unix

package redisstore_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// The server does not look for expired keys of its own accord; the waiter does
// not depend on that.
func TestCrashedHolder(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--enable-debug-command", "yes")
	server.Do("DEBUG", "SET-ACTIVE-EXPIRE", "0")
	server.Do("SET", "lock:name", "a client that has crashed", "PX", "300")
	locks := connect(t, server.Addr, nil)
	began := time.Now()
	lock, err := locks.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("acquired %v after a key with 300ms to live", time.Since(began))
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
