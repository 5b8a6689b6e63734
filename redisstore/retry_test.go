//go:build unix

package redisstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// occupyFor has a server work on a command until the test ends it, by another command.
func occupyFor(t *testing.T, server *servers.Redis, command []any, end ...string) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: -1})
		defer client.Close()
		client.Do(context.Background(), command...)
	}()
	t.Cleanup(func() {
		server.Do(end...)
		<-ended
	})
}

// What a server cannot do now and can do later is no failure: waiters go on. The keys are what the
// errors say.
func TestServersThatServeLater(t *testing.T) {
	t.Parallel()
	all, writing := []string{"Acquire", "Renew", "Release", "Lookup", "Break"}, []string{"Acquire", "Renew", "Release", "Break"}
	for says, c := range map[string]struct {
		args    []string // of the server
		opts    *Options
		verbs   []string
		prepare func(t *testing.T, server *servers.Redis, held driver.Request)
	}{
		"LOADING": {
			args: []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no"}, verbs: allVerbs,
			prepare: func(t *testing.T, server *servers.Redis, _ driver.Request) {
				server.Do("EVAL", "for i = 1, 500 do redis.call('SET', 'other:' .. i, string.rep(i, 1000)) end", "0")
				server.Do("CONFIG", "SET", "key-load-delay", "100000")
				occupyFor(t, server, []any{"DEBUG", "RELOAD"}, "CONFIG", "SET", "key-load-delay", "0")
			},
		},
		"BUSY": {args: []string{"--lua-time-limit", "10"}, verbs: all, prepare: func(t *testing.T, server *servers.Redis, _ driver.Request) {
			occupyFor(t, server, []any{"EVAL", "while true do end", 0}, "SCRIPT", "KILL")
		}},
		"MASTERDOWN": {args: []string{"--replica-serve-stale-data", "no"}, verbs: all, prepare: func(_ *testing.T, server *servers.Redis, _ driver.Request) {
			server.Do("REPLICAOF", "127.0.0.1", "1")
		}},
		"NOREPLICAS": {verbs: writing, prepare: func(t *testing.T, server *servers.Redis, held driver.Request) {
			if _, err := open(t, server.Addr, nil).Acquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		}},
		"MISCONF": {verbs: writing, prepare: func(t *testing.T, server *servers.Redis, held driver.Request) {
			if _, err := open(t, server.Addr, nil).Acquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			server.Do("CONFIG", "SET", "save", "3600 1")
			_, dir, _ := strings.Cut(server.Do("CONFIG", "GET", "dir"), "\n")
			if err := os.MkdirAll(filepath.Join(dir, "dump.rdb", "in the way"), 0o700); err != nil {
				t.Fatal(err)
			}
			server.Do("BGSAVE")
		}},
		"0 replicas":  {opts: &Options{MinReplicas: 1, ReplicaTimeout: time.Millisecond}, verbs: all[:1]},
		"CLUSTERDOWN": {args: []string{"--cluster-enabled", "yes"}, verbs: all},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			server, held := servers.StartRedis(t, c.args...), request("name", time.Minute)
			s := open(t, server.Addr, c.opts)
			if says == "CLUSTERDOWN" {
				server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16382")
				s = over(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, ContextTimeoutEnabled: true}), nil)
			}
			if c.prepare != nil {
				c.prepare(t, server, held)
			}
			eventually(t, says, func() bool {
				_, err := s.Acquire(t.Context(), request("another", time.Minute))
				return err != nil && strings.Contains(err.Error(), says)
			})
			for _, verb := range c.verbs {
				err := storecheck.Calls(s, held)[verb](t.Context())
				if !errors.As(err, new(*driver.RetryError)) || !driver.IsNotApplied(err) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v, want a RetryError that says %q", verb, err, says)
				}
			}
		})
	}
}

// The client of a cluster or of Sentinels will find the master of a lock. Another one knows one
// server alone.
func TestMasterIsAnother(t *testing.T) {
	for reply, s := range map[string]*Store{
		"MOVED 5474 127.0.0.1:7001": {cluster: true}, "ASK 5474 127.0.0.1:7001": {cluster: true}, "READONLY of a replica": {sentinel: true},
	} {
		for _, later := range []bool{true, false} {
			err := s.explainReply(errors.New(reply))
			if errors.As(err, new(*driver.RetryError)) != later || !driver.IsNotApplied(err) {
				t.Errorf("%s, later %v: %v", reply, later, err)
			}
			s = &Store{}
		}
	}
}
