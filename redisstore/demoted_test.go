//go:build unix

package redisstore

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// After a planned failover behind one address, open connections are at a server that is a replica
// now. One refusal ends such a connection: the next request reaches the master, and no lock is
// lost.
func TestFailoverBehindOneAddress(t *testing.T) {
	t.Parallel()
	first, second := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t, "--repl-diskless-sync-delay", "0")
	follow(t, second, first)
	var master atomic.Value
	master.Store(first.Addr)
	tries := map[string]func(context.Context) error{}
	for kind, limit := range map[string]int{"exclusive": 1, "waited for": 1, "limited": 3, "limited and waited for": 3, "shared": driver.Shared} {
		for _, verb := range []string{"Acquire", "Renew", "Release", "Break"} {
			s := over(t, redis.NewClient(&redis.Options{
				Addr: "one.address:6379", ContextTimeoutEnabled: true, PoolSize: 1, PipelinePoolSize: 1, MaxRetries: -1,
				Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, master.Load().(string))
				},
			}), nil)
			req, _ := share(t, s, kind+": "+verb, limit, time.Minute)
			if strings.Contains(kind, "waited for") {
				wait(t, s, req.Name, 30*time.Second)
			}
			if verb == "Acquire" {
				req.Owner = request("", 0).Owner
			}
			tries[req.Name] = storecheck.Calls(s, req)[verb]
		}
	}
	eventually(t, "replica that has all", func() bool {
		return infoField(first, "master_repl_offset") == infoField(second, "master_repl_offset")
	})
	second.Do("REPLICAOF", "NO", "ONE")
	follow(t, first, second)
	master.Store(second.Addr)
	next := open(t, second.Addr, nil)
	for what, try := range tries {
		if err := try(t.Context()); !driver.IsNotApplied(err) {
			t.Errorf("%s at the old master: %v, want that nothing was applied", what, err)
		}
		if records, err := next.Lookup(t.Context(), what); err != nil || len(records) != 1 {
			t.Errorf("%s: the new master has %v, %v", what, records, err)
		}
		if err := try(t.Context()); err != nil {
			t.Errorf("%s, the second request: %v", what, err)
		}
	}
}
