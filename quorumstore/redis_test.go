//go:build unix

package quorumstore_test

import (
	"bytes"
	"context"
	"errors"
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

// A site is a set of real Redis servers that quorums are made of.
type site struct {
	servers []*servers.Redis
	addrs   []string      // where clients connect to
	guard   time.Duration // RestartGuard
	places  atomic.Int64  // how many prefixes are in use
}

func newSite(tb testing.TB, size int) *site {
	tb.Helper()
	// A hung server's connections wait to be accepted, those of all cases.
	s := &site{servers: servers.StartRedises(tb, size, "--tcp-backlog", "4096")}
	for _, server := range s.servers {
		s.addrs = append(s.addrs, server.Addr)
	}
	return s
}

// slow puts a proxy that delays between the clients and a server.
func (s *site) slow(tb testing.TB, node int, least, most time.Duration) {
	proxy := faultproxy.Start(tb, s.servers[node].Addr)
	proxy.Delay(faultproxy.Up, least, most)
	proxy.Delay(faultproxy.Down, least, most)
	s.addrs[node] = proxy.Addr()
}

// prefix makes one that is not in use.
func (s *site) prefix() string { return fmt.Sprintf("%d:", s.places.Add(1)) }

// open makes a quorum that has clients of its own to the addresses.
func (s *site) open(tb testing.TB, prefix string, addrs []string) *quorumstore.Store {
	var nodes []driver.Store
	for _, addr := range addrs {
		nodes = append(nodes, s.store(dial(tb, addr), prefix))
	}
	return quorum(nodes)
}

func dial(tb testing.TB, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialTimeout: patient, DialerRetries: 1,
	})
	tb.Cleanup(func() { _ = client.Close() }) // Nothing is under way that matters.
	return client
}

func (s *site) store(client *redis.Client, prefix string) driver.Store {
	return redisstore.New(client, &redisstore.Options{Prefix: prefix, RestartGuard: s.guard})
}

func quorum(nodes []driver.Store) *quorumstore.Store {
	return quorumstore.New(nodes, &quorumstore.Options{CloseStores: true, Timeout: patient})
}

// proxied is a harness whose stores each reach the servers by proxies of their
// own. Requests and answers are lost at one node, and connections at all.
func (s *site) proxied(tb testing.TB) drivertest.Harness {
	load(tb, s)
	return drivertest.Harness{New: func(testing.TB) drivertest.Backing {
		prefix := s.prefix()
		var mu sync.Mutex
		all := map[driver.Store][]*faultproxy.Proxy{}
		proxies := func(store driver.Store) []*faultproxy.Proxy {
			mu.Lock()
			defer mu.Unlock()
			return all[store]
		}
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				var proxies []*faultproxy.Proxy
				var addrs []string
				for _, addr := range s.addrs {
					proxy := faultproxy.Start(tb, addr)
					proxies = append(proxies, proxy)
					addrs = append(addrs, proxy.Addr())
				}
				store := s.open(tb, prefix, addrs)
				mu.Lock()
				defer mu.Unlock()
				all[store] = proxies
				return store
			},
			Crash: func(testing.TB, driver.Store) {},
			Fault: func(_ testing.TB, store driver.Store, f drivertest.Fault) {
				if f == drivertest.ReplyLost {
					proxies(store)[0].LoseReply(isScript)
				} else {
					proxies(store)[0].LoseRequest(isScript)
				}
			},
			Sever: func(_ testing.TB, store driver.Store) {
				for _, proxy := range proxies(store) {
					proxy.Reset()
				}
			},
			Silence: func(_ testing.TB, store driver.Store) {
				for _, proxy := range proxies(store) {
					proxy.Hold(faultproxy.Down) // until it is closed
				}
			},
		}
	}}
}

// load makes the scripts known to the servers, so that a fault meets the request
// that is meant.
func load(tb testing.TB, s *site) { walk(tb, s.open(tb, s.prefix(), s.addrs)) }

func isScript(request []byte) bool { return bytes.Contains(request, []byte("evalsha")) }

// guarded gives all servers a guard, and returns when they take part in the first prefix.
func (s *site) guarded(tb testing.TB, guard time.Duration) {
	s.guard = guard
	var group sync.WaitGroup
	for _, addr := range s.addrs {
		node := s.store(dial(tb, addr), "1:")
		group.Go(func() {
			if err := outwait(tb.Context(), node); err != nil {
				tb.Errorf("a guarded server: %v", err)
			}
		})
	}
	group.Wait()
}

// outwait returns when a server that abstains takes part.
func outwait(ctx context.Context, node driver.Store) error {
	for {
		_, err := node.Acquire(ctx, driver.Request{Name: "first", Owner: "first", Holder: "first", TTL: driver.MinTTL})
		var abstains *driver.RetryError
		if !errors.As(err, &abstains) {
			return err
		}
		<-time.After(abstains.After)
	}
}

// harms are what becomes of a minority of five servers.
var harms = map[string]func(tb testing.TB, s *site){
	"healthy":          func(testing.TB, *site) {},
	"dead":             func(_ testing.TB, s *site) { s.servers[0].Kill() },
	"hung":             func(_ testing.TB, s *site) { s.servers[1].Pause() },
	"slow":             slowNode,
	"restarted empty":  restartedNode,
	"slow and hung":    func(tb testing.TB, s *site) { slowNode(tb, s); s.servers[1].Pause() },
	"dead and emptied": func(tb testing.TB, s *site) { restartedNode(tb, s); s.servers[0].Kill() },
}

func slowNode(tb testing.TB, s *site) { s.slow(tb, 2, 20*time.Millisecond, 40*time.Millisecond) }

func restartedNode(tb testing.TB, s *site) {
	s.guarded(tb, time.Second)
	s.servers[3].RestartEmpty()
}

// A quorum of real servers is a correct store, whatever becomes of a minority. All states are
// tested whole in virtual time.
func TestRedis(t *testing.T) {
	for name, harm := range harms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 5)
			harm(t, s)
			walk(t, s.open(t, s.prefix(), s.addrs))
		})
	}
}

// Requests and replies that are lost at one node, and connections at all, are part of the suite.
func TestRedisConformance(t *testing.T) {
	t.Parallel()
	h := newSite(t, 3).proxied(t)
	h.Walk = os.Getenv("TEST_WHOLE") == ""
	drivertest.Run(t, h)
}
