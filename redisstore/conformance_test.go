//go:build unix

package redisstore

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// In each case the scripts touch no key that they do not declare, and messages have no secret.
func TestConformanceSingle(t *testing.T) {
	t.Parallel()
	var touched atomic.Int64
	t.Cleanup(func() {
		if touched.Load() < 1000 && !t.Failed() {
			t.Errorf("only %d commands of scripts were seen", touched.Load())
		}
	})
	empty := emptyServers(t)
	drivertest.Run(t, drivertest.Harness{New: func(tb testing.TB) drivertest.Backing {
		server := empty(tb)
		lines := watch(tb, server)
		tb.Cleanup(func() { touched.Add(int64(undeclared(tb, lines()))) })
		backing := proxied(server, nil)
		backing.Restart = func(tb testing.TB) {
			touched.Add(int64(undeclared(tb, lines())))
			server.RestartEmpty()
			lines = watch(tb, server)
			loadScripts(tb, server)
		}
		return backing
	}})
}

func TestConformancePersistent(t *testing.T) {
	t.Parallel()
	empty := emptyServers(t, "--appendonly", "yes", "--appendfsync", "always")
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		server := empty(tb)
		backing := proxied(server, &Options{NoPrefix: true})
		backing.Restart = func(tb testing.TB) {
			server.Restart()
			loadScripts(tb, server) // A later case loses the reply to its first script.
		}
		return backing
	}})
}

func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	for _, master := range cluster.Masters {
		loadScripts(t, master)
	}
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		return dialled(&Options{Prefix: "cluster/" + tb.Name() + "/"}, func(d *faultyDialer) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: d.dial})
		})
	}})
}

func TestConformanceSentinel(t *testing.T) {
	t.Parallel()
	set := servers.StartRedisSentinel(t)
	for _, server := range set.Nodes {
		loadScripts(t, server)
	}
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		opts := &Options{Prefix: "sentinel with spaces/" + tb.Name() + "/", MinReplicas: 1}
		return dialled(opts, func(d *faultyDialer) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: set.Master, SentinelAddrs: set.Sentinels, Dialer: d.dial})
		})
	}})
}

// emptyServers returns a function that gives each case an empty server for itself. The cases use
// the same few servers in turn, because the start of a server costs more than most cases.
func emptyServers(t *testing.T, args ...string) func(tb testing.TB) *servers.Redis {
	idle := make(chan *servers.Redis, 1000)
	return func(tb testing.TB) *servers.Redis {
		var server *servers.Redis
		select {
		case server = <-idle:
		default:
			server = servers.StartRedis(t, args...)
			loadScripts(t, server)
		}
		tb.Cleanup(func() {
			server.Do("FLUSHALL")
			idle <- server
		})
		return server
	}
}

// dialled is a backing whose stores each have a client of their own, that dials
// through a faultyDialer.
func dialled(opts *Options, client func(*faultyDialer) redis.UniversalClient) drivertest.Backing {
	var mu sync.Mutex
	dialers := map[driver.Store]*faultyDialer{}
	of := func(s driver.Store) *faultyDialer {
		mu.Lock()
		defer mu.Unlock()
		return dialers[s]
	}
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store {
			d := &faultyDialer{}
			c := client(d)
			tb.Cleanup(func() { _ = c.Close() })
			connect(tb, c)
			s := New(c, opts)
			mu.Lock()
			defer mu.Unlock()
			dialers[s] = d
			return s
		},
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) { of(s).arm(f) },
		Sever: func(_ testing.TB, s driver.Store) { of(s).sever() },
	}
}

// connect has the client find its servers before any fault.
func connect(tb testing.TB, client redis.UniversalClient) {
	tb.Helper()
	if err := client.Ping(tb.Context()).Err(); err != nil {
		tb.Fatal(err)
	}
}

// loadScripts makes the scripts known, so that a fault hits the request that a
// test means and not one that asks for the text of a script.
func loadScripts(tb testing.TB, server *servers.Redis) {
	for _, s := range []*script{acquireScript, renewScript, releaseScript, lookupScript, breakScript} {
		text, _ := s.source()
		server.Do("SCRIPT", "LOAD", text)
	}
}

// proxied is a backing whose stores each reach the server through a proxy of
// their own.
func proxied(server *servers.Redis, opts *Options) drivertest.Backing {
	var mu sync.Mutex
	proxies := map[driver.Store]*faultproxy.Proxy{}
	through := func(s driver.Store) *faultproxy.Proxy {
		mu.Lock()
		defer mu.Unlock()
		return proxies[s]
	}
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store {
			proxy := faultproxy.Start(tb, server.Addr)
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			tb.Cleanup(func() { _ = client.Close() })
			s := New(client, opts)
			mu.Lock()
			defer mu.Unlock()
			proxies[s] = proxy
			return s
		},
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) {
			if f == drivertest.ReplyLost {
				through(s).LoseReply(isScript)
				return
			}
			through(s).LoseRequest(isRequest)
		},
		Sever: func(_ testing.TB, s driver.Store) { through(s).Reset() },
		Silence: func(_ testing.TB, s driver.Store) {
			through(s).Hold(faultproxy.Down) // until the proxy is closed
		},
		Occupy: func(_ testing.TB, name string, way int) bool { return occupy(server, prefixOf(opts)+name, way) },
	}
}

// isScript reports whether a request runs a script.
func isScript(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) }

// isRequest reports whether a request is of a verb: a script, or the beginning
// of a listing or of a watch.
func isRequest(request []byte) bool {
	return isScript(request) || bytes.Contains(request, []byte("scan")) || bytes.Contains(request, []byte("GET"))
}

func prefixOf(opts *Options) string { return New(nil, opts).prefix }

// occupy leaves under a key what one of the strangers leaves, with the expiry that it
// has, with one that is far away, or with one beyond all bounds.
func occupy(server *servers.Redis, key string, way int) bool {
	ends := []string{"", "253402400000000", "9000000000000000"}
	names := slices.Sorted(maps.Keys(strangers))
	if way >= len(names)*len(ends) {
		return false
	}
	words := slices.Clone(strangers[names[way/len(ends)]])
	words[1] = key
	server.Do(words...)
	if end := ends[way%len(ends)]; end != "" {
		server.Do("PEXPIREAT", key, end)
	}
	return true
}
