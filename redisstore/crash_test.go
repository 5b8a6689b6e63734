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

// Among many keys that expire the server comes across an expired lock late, if
// ever; the waiter does not depend on that either.
func TestCrashedHolderOnABusyServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	fill := "for i = 1, 100000 do redis.call('SET', 'other:' .. ARGV[1] .. i, 'x', 'PX', 3600000) end"
	for _, part := range []string{"a", "b", "c"} {
		server.Do("EVAL", fill, "0", part)
	}
	const ttl = 500 * time.Millisecond
	server.Do("SET", "lock:name", "a client that has crashed", "PX", "500")
	locks := connect(t, server.Addr, nil)
	began := time.Now()
	lock, err := locks.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("beside 300000 keys: acquired %v after a key with %v to live", time.Since(began), ttl)
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
