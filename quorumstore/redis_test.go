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
const patient = 20 * time.Second

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

// A quorum of five real servers, of which one is dead, one hangs and one is slow, is a correct
// store: also if requests and replies at one node get lost, and connections at all. Each store
// reaches the servers by proxies of its own. All states are tested whole in virtual time.
func TestRedis(t *testing.T) {
	t.Parallel()
	// A hung server's connections wait to be accepted, those of all cases.
	all := servers.StartRedises(t, 5, "--tcp-backlog", "4096")
	all[0].Kill()
	all[1].Pause()
	var places atomic.Int64
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", Slow: true, New: func(testing.TB) drivertest.Backing {
		prefix := fmt.Sprint(places.Add(1), ":")
		var proxies sync.Map // of each store
		of := func(store driver.Store) []*faultproxy.Proxy {
			near, _ := proxies.Load(store)
			return near.([]*faultproxy.Proxy)
		}
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				var near []*faultproxy.Proxy
				var addrs []string
				for _, server := range all {
					proxy := faultproxy.Start(tb, server.Addr)
					near, addrs = append(near, proxy), append(addrs, proxy.Addr())
				}
				near[2].Delay(faultproxy.Up, 0, 10*time.Millisecond)
				store := open(tb, prefix, addrs)
				proxies.Store(store, near)
				return store
			},
			Crash: func(testing.TB, driver.Store) {},
			Fault: func(_ testing.TB, store driver.Store, f drivertest.Fault) {
				if f == drivertest.ReplyLost {
					of(store)[3].LoseReply(isScript)
				} else {
					of(store)[3].LoseRequest(isScript)
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
