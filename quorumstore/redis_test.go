//go:build unix

package quorumstore_test

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

func TestMain(m *testing.M) {
	logging.Disable() // The client library logs what the test does to its servers.
	flag.Parse()
	_ = flag.Set("test.parallel", "12") // Cases with real servers mostly wait.
	os.Exit(m.Run())
}

// A quorum of five real servers, of which one is dead, one hangs and one is slow, is a correct
// store. All states are tested whole in virtual time.
func TestRedis(t *testing.T) {
	t.Parallel()
	const patient = 20 * time.Second // on a machine that is busy
	// A hung server's connections wait to be accepted, those of all cases.
	all := servers.StartRedises(t, 5, "--tcp-backlog", "4096")
	all[0].Kill()
	all[1].Pause()
	// What the slow one says still counts for a vote: the death of the first is found later.
	dead, slow := faultproxy.Start(t, all[0].Addr), faultproxy.Start(t, all[2].Addr)
	slow.Delay(faultproxy.Up, 0, 10*time.Millisecond)
	var places atomic.Int64
	drivertest.Run(t, drivertest.Harness{Walk: os.Getenv("TEST_WHOLE") == "", Slow: true, New: func(testing.TB) drivertest.Backing {
		prefix := fmt.Sprint(places.Add(1), ":")
		return drivertest.Backing{
			Open: func(tb testing.TB) driver.Store {
				var nodes []driver.Store
				for _, addr := range []string{dead.Addr(), all[1].Addr, slow.Addr(), all[3].Addr, all[4].Addr} {
					client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DialTimeout: patient, DialerRetries: 1})
					tb.Cleanup(func() { _ = client.Close() }) // Nothing is under way that matters.
					nodes = append(nodes, redisstore.New(client, &redisstore.Options{Prefix: prefix}))
				}
				return quorumstore.New(nodes, &quorumstore.Options{CloseStores: true, Timeout: patient})
			},
			Crash: func(testing.TB, driver.Store) {},
		}
	}})
}
