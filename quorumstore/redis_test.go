//go:build unix

package quorumstore_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// patient gives the nodes time enough on a machine that is busy.
const patient = 4 * time.Second

// open makes a quorum that has clients of its own to the addresses.
func open(tb testing.TB, prefix string, addrs []string) *quorumstore.Store {
	var nodes []driver.Store
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialTimeout: patient, DialerRetries: 1})
		tb.Cleanup(func() { _ = client.Close() }) // Nothing is under way that matters.
		nodes = append(nodes, redisstore.New(client, &redisstore.Options{Prefix: prefix}))
	}
	return quorumstore.New(nodes, &quorumstore.Options{CloseStores: true, Timeout: patient})
}

// start starts servers, and returns their addresses.
func start(tb testing.TB, size int) (all []*servers.Redis, addrs []string) {
	// A hung server's connections wait to be accepted, those of all cases.
	all = servers.StartRedises(tb, size, "--tcp-backlog", "4096")
	for _, server := range all {
		addrs = append(addrs, server.Addr)
	}
	return all, addrs
}

// A quorum of real servers is a correct store, whatever becomes of a minority. All states are
// tested whole in virtual time.
func TestRedis(t *testing.T) {
	t.Parallel()
	all, addrs := start(t, 5)
	all[0].Kill()
	all[1].Pause()
	slow := faultproxy.Start(t, addrs[2])
	slow.Delay(faultproxy.Up, 0, 10*time.Millisecond)
	addrs[2] = slow.Addr()
	var places atomic.Int64
	drivertest.Run(t, drivertest.Harness{Walk: true, Slow: true, New: func(testing.TB) drivertest.Backing {
		prefix := fmt.Sprint(places.Add(1), ":")
		return drivertest.Backing{
			Open:  func(tb testing.TB) driver.Store { return open(tb, prefix, addrs) },
			Crash: func(testing.TB, driver.Store) {},
		}
	}})
}

// Requests and replies that are lost at one node, and connections at all, are part of the suite.
// Each store reaches the servers by proxies of its own.
func TestRedisConformance(t *testing.T) {
	t.Parallel()
	_, addrs := start(t, 3)
	var places atomic.Int64
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", New: func(testing.TB) drivertest.Backing {
		prefix := fmt.Sprint(places.Add(1), ":")
		var proxies sync.Map // of each store
		of := func(store driver.Store) []*faultproxy.Proxy {
			all, _ := proxies.Load(store)
			return all.([]*faultproxy.Proxy)
		}
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				var all []*faultproxy.Proxy
				var near []string
				for _, addr := range addrs {
					proxy := faultproxy.Start(tb, addr)
					all, near = append(all, proxy), append(near, proxy.Addr())
				}
				store := open(tb, prefix, near)
				proxies.Store(store, all)
				return store
			},
			Crash: func(testing.TB, driver.Store) {},
			Fault: func(_ testing.TB, store driver.Store, f drivertest.Fault) {
				if f == drivertest.ReplyLost {
					of(store)[0].LoseReply(isScript)
				} else {
					of(store)[0].LoseRequest(isScript)
				}
			},
			Sever: func(_ testing.TB, store driver.Store) {
				for _, proxy := range of(store) {
					proxy.Reset()
				}
			},
			Silence: func(_ testing.TB, store driver.Store) {
				for _, proxy := range of(store) {
					proxy.Hold(faultproxy.Down) // until it is closed
				}
			},
		}
	}})
}

func isScript(request []byte) bool { return bytes.Contains(request, []byte("eval")) }
