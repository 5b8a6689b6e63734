//go:build unix

package redisstore

import (
	"bytes"
	"context"
	"maps"
	"net"
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
		backing := single(server, nil)
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
		backing := single(server, &Options{NoPrefix: true})
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
		return backing(&Options{Prefix: "cluster/" + tb.Name() + "/"}, func(d *detour) redis.UniversalClient {
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
		return backing(opts, func(d *detour) redis.UniversalClient {
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

// loadScripts makes the scripts known, so that a fault hits the request that a
// test means and not one that asks for the text of a script.
func loadScripts(tb testing.TB, server *servers.Redis) {
	for _, s := range []*script{acquireScript, renewScript, releaseScript, lookupScript, breakScript} {
		text, _ := s.source()
		server.Do("SCRIPT", "LOAD", text)
	}
}

// backing is a backing whose stores each have a client of their own.
func backing(opts *Options, newClient func(*detour) redis.UniversalClient) drivertest.Backing {
	var detours sync.Map // by store
	of := func(s driver.Store) *detour {
		d, _ := detours.Load(s)
		return d.(*detour)
	}
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store {
			d := &detour{proxies: map[string]*faultproxy.Proxy{}}
			tb.Cleanup(func() { d.all(func(p *faultproxy.Proxy) { p.Close() }) })
			client := newClient(d)
			tb.Cleanup(func() { _ = client.Close() })
			if err := client.Ping(tb.Context()).Err(); err != nil { // It finds its servers before any fault.
				tb.Fatal(err)
			}
			s := New(client, opts)
			detours.Store(s, d)
			return s
		},
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) {
			var met atomic.Bool // by a request, to whichever server
			match := func(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) && !met.Swap(true) }
			of(s).all(func(p *faultproxy.Proxy) {
				if f == drivertest.ReplyLost {
					p.LoseReply(match)
				} else {
					p.LoseRequest(match)
				}
			})
		},
		Sever: func(_ testing.TB, s driver.Store) { of(s).all((*faultproxy.Proxy).Reset) },
		Silence: func(_ testing.TB, s driver.Store) {
			of(s).all(func(p *faultproxy.Proxy) { p.Hold(faultproxy.Down) }) // until they are closed
		},
	}
}

// single is a backing of one server.
func single(server *servers.Redis, opts *Options) drivertest.Backing {
	b := backing(opts, func(d *detour) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: d.dial})
	})
	b.Occupy = func(_ testing.TB, name string, way int) bool { return occupy(server, New(nil, opts).prefix, name, way) }
	return b
}

// A detour leads a client through a proxy to each server that it finds out about.
type detour struct {
	mu      sync.Mutex
	proxies map[string]*faultproxy.Proxy // by the address of the server
	last    func(*faultproxy.Proxy)      // of all
}

// all calls a function for all proxies, also for those to come.
func (d *detour) all(f func(*faultproxy.Proxy)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = f
	for _, p := range d.proxies {
		f(p)
	}
}

func (d *detour) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	p, err := d.proxies[addr], error(nil)
	if p == nil {
		if p, err = faultproxy.Listen(addr); err == nil {
			d.proxies[addr] = p
			if d.last != nil {
				d.last(p)
			}
		}
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, p.Addr())
}

// occupy leaves under a name what one of the strangers leaves, with the expiry that it has, with
// one that is far away, or with one beyond all bounds; or a key of a wrong type beside the lock.
func occupy(server *servers.Redis, prefix, name string, way int) bool {
	key, beside := prefix+name, []string{queueInfix, entriesInfix}
	ends := []string{"", "253402400000000", "9000000000000000"}
	names := slices.Sorted(maps.Keys(strangers))
	if way < len(beside) {
		server.Do("MSET", key, "x", prefix+beside[way]+key, "x")
		return true
	}
	if way -= len(beside); way >= len(names)*len(ends) {
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
