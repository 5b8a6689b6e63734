//go:build unix

package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A server that cannot do it is never said to hold the lock: each has an error of
// its kind, within the bounds of a request, without the password.
func TestUnfitServersDoNotHold(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		args    []string // of the server
		prepare func(server *servers.Redis)
		query   string // of the URL
		want    error
	}{
		"that is gone":               {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Kill() }},
		"that hangs":                 {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Pause() }},
		"with another password":      {want: holdfast.ErrUnavailable, args: []string{"--requirepass", "another"}},
		"that is a replica":          {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("REPLICAOF", "127.0.0.1", "1") }},
		"without memory":             {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("CONFIG", "SET", "maxmemory", "1") }},
		"with a text for a counter":  {want: holdfast.ErrCorrupt, prepare: func(s *servers.Redis) { s.Do("SET", "lock:\x1fcounter", "x") }},
		"at the end of its counter":  {want: holdfast.ErrCorrupt, prepare: func(s *servers.Redis) { s.Do("SET", "lock:\x1fcounter", "9223372036854775807") }},
		"with a list for a guard":    {want: holdfast.ErrCorrupt, query: "?restart_guard=1m", prepare: func(s *servers.Redis) { s.Do("LPUSH", "lock:\x1fguard", "x") }},
		"without scripts":            {want: holdfast.ErrUnsupported, args: []string{"--rename-command", "EVALSHA", ""}},
		"that forbids scripts to us": {want: holdfast.ErrUnavailable, prepare: func(s *servers.Redis) { s.Do("ACL", "SETUSER", "default", "-evalsha") }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, c.args...)
			if c.prepare != nil {
				c.prepare(server)
			}
			user := ""
			if len(c.args) > 0 && c.args[0] == "--requirepass" {
				user = ":SecretWord@"
			}
			locks, err := holdfast.Open(t.Context(), "redis://"+user+server.Addr+c.query, &holdfast.Config{RequestTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = locks.TryAcquire(t.Context(), "name", nil)
			if !errors.Is(err, c.want) || errors.Is(err, holdfast.ErrHeld) || strings.Contains(err.Error(), "Secret") {
				t.Errorf("TryAcquire: %v, want %v", err, c.want)
			}
			if took := time.Since(began); took > bound/2 {
				t.Errorf("TryAcquire took %v", took)
			}
			if what == "that hangs" {
				server.Resume()
			}
			_ = locks.Close() // What it reports is the server's doing.
		})
	}
}

// A replica, whose data may be old, answers nothing: neither that a name is held, nor that it is
// free, nor that a hold is there, nor that it is lost.
func TestReplica(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	s := open(t, replica.Addr, nil)
	fails(t, s, driver.ErrNotApplied, "replica", allVerbs...)
	held, atMaster := request("name", time.Minute), open(t, master.Addr, nil)
	if res, err := atMaster.Acquire(t.Context(), held); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	eventually(t, "hold at the replica", func() bool { return replica.Do("EXISTS", "lock:name") == "1" })
	fails(t, s, driver.ErrNotApplied, "replica", allVerbs...)
	held.TTL, s.listener.channel = held.TTL/2, atMaster.listener.channel // so that a renewal has nothing to change
	storecheck.Fails(t, s, held, driver.ErrNotApplied, "replica", "Acquire", "Renew", "Release")
}

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
