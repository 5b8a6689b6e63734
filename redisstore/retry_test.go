//go:build unix

package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// isLater checks that a call of each verb ends with the answer of a server that works
// and cannot serve now.
func isLater(t *testing.T, s *Store, says string, verbs ...string) {
	t.Helper()
	all := calls(s, "name")
	for _, verb := range verbs {
		err := all[verb](t.Context())
		var later *driver.RetryError
		if !errors.As(err, &later) || !driver.IsNotApplied(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a RetryError that says %q", verb, err, says)
		}
	}
}

var scriptVerbs = []string{"Acquire", "Renew", "Release", "Lookup", "Break"}

// What a server cannot do now and can do later is no failure: waiters go on.
func TestServersThatServeLater(t *testing.T) {
	t.Parallel()
	t.Run("it reads its data", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t, "--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024")
		server.Do("EVAL", "for i = 1, 500 do redis.call('SET', 'other:' .. i, string.rep(i, 1000)) end", "0")
		s := open(t, server.Addr, nil)
		held := grant(t, s, "name", time.Minute)
		server.Do("CONFIG", "SET", "key-load-delay", "100000")
		reloaded := make(chan struct{})
		go func() {
			defer close(reloaded)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1})
			defer client.Close()
			client.Do(t.Context(), "DEBUG", "RELOAD")
		}()
		eventually(t, "a server that reads its data", func() bool {
			_, _, err := look(s, t.Context(), "name")
			return err != nil && strings.Contains(err.Error(), "LOADING")
		})
		isLater(t, s, "LOADING", append([]string{"List"}, scriptVerbs...)...)
		server.Do("CONFIG", "SET", "key-load-delay", "0")
		<-reloaded
		if !release(t, s, held) {
			t.Error("the lock is gone")
		}
	})
	t.Run("its master is away", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t, "--replica-serve-stale-data", "no")
		server.Do("REPLICAOF", "127.0.0.1", "1")
		isLater(t, open(t, server.Addr, nil), "MASTERDOWN", scriptVerbs...)
	})
	t.Run("its replicas are away", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t)
		s := open(t, server.Addr, nil)
		req := grant(t, s, "name", time.Minute)
		server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		isLater(t, s, "NOREPLICAS", "Break")
		_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if later := (*driver.RetryError)(nil); !errors.As(err, &later) {
			t.Errorf("Release: %v", err)
		}
		_, err = s.Acquire(t.Context(), request("another", time.Minute))
		if later := (*driver.RetryError)(nil); !errors.As(err, &later) {
			t.Errorf("Acquire: %v", err)
		}
	})
	t.Run("too few replicas confirm", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t)
		isLater(t, open(t, server.Addr, &Options{MinReplicas: 1, ReplicaTimeout: time.Millisecond}), "0 replicas", "Acquire")
	})
	t.Run("it carries out a long script", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t, "--lua-time-limit", "10")
		s := open(t, server.Addr, nil)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1})
			defer client.Close()
			client.Eval(t.Context(), "while true do end", nil)
		}()
		eventually(t, "a busy server", func() bool {
			_, _, err := look(s, t.Context(), "name")
			return err != nil && strings.Contains(err.Error(), "BUSY")
		})
		isLater(t, s, "BUSY", scriptVerbs...)
		server.Do("SCRIPT", "KILL")
		<-ended
	})
	t.Run("its cluster is not whole", func(t *testing.T) {
		t.Parallel()
		server := servers.StartRedis(t, "--cluster-enabled", "yes")
		server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16382")
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true})
		isLater(t, over(t, client, nil), "CLUSTERDOWN", scriptVerbs...)
	})
	t.Run("the master of the lock is another", func(t *testing.T) {
		for reply, s := range map[string]*Store{"MOVED 5474 127.0.0.1:7001": {cluster: true}, "READONLY of a replica": {sentinel: true}} {
			for _, later := range []bool{true, false} { // The client will find it, or it knows one server alone.
				err := s.explainReply(errors.New(reply))
				if retry := (*driver.RetryError)(nil); errors.As(err, &retry) != later || !driver.IsNotApplied(err) {
					t.Errorf("%s, later %v: %v", reply, later, err)
				}
				s = &Store{}
			}
		}
	})
}
