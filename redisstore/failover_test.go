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
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A replica that is promoted forgets what it has not got, and so a lock is granted twice; also one
// that an old master grants, which is not demoted yet. With MinReplicas no such grant counts. The
// tokens rise in any case.
func TestFailover(t *testing.T) {
	t.Parallel()
	for how, replicas := range map[string]int{"without MinReplicas": 0, "with MinReplicas": 1} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			old, promoted := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
			line := faultproxy.Start(t, old.Addr)
			host, port, _ := strings.Cut(line.Addr(), ":")
			promoted.Do("REPLICAOF", host, port)
			s := open(t, old.Addr, &Options{MinReplicas: replicas, ReplicaTimeout: 50 * time.Millisecond})
			eventually(t, "grant that the replica has", func() bool {
				req := request("confirmed", time.Minute)
				_, err := s.Acquire(t.Context(), req)
				return err == nil && promoted.Do("EXISTS", "lock:confirmed") == "1"
			})
			line.Hold(faultproxy.Down)
			tokens := map[string]int64{}
			try := func(name string) {
				res, err := s.Acquire(t.Context(), request(name, time.Minute))
				if counts := err == nil && res.Granted; counts != (replicas == 0) {
					t.Errorf("%s by the old master: %+v, %v", name, res, err)
				}
				tokens[name] = res.Token
			}
			try("behind")
			promoted.Do("REPLICAOF", "NO", "ONE")
			try("planned")
			next := open(t, promoted.Addr, nil)
			if res, err := next.Acquire(t.Context(), request("confirmed", time.Minute)); err != nil || res.Granted {
				t.Errorf("what the replica has: %+v, %v", res, err)
			}
			for name, token := range tokens {
				if res, err := next.Acquire(t.Context(), request(name, time.Minute)); err != nil || res.Token <= token {
					t.Errorf("%s by the new master: %+v, %v, want a token above %d", name, res, err, token)
				}
			}
		})
	}
}

// A client of Sentinels follows its master: a hold that the replicas have goes on at the new one,
// and what is asked meanwhile is not "held" or lost, but to be tried again.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	set := servers.StartRedisSentinel(t)
	s := openFromURL(t, "redis+sentinel://"+set.Sentinels[0]+"/"+set.Master+"?nodes="+strings.Join(set.Sentinels[1:], ",")+"&min_replicas=2")
	held := grant(t, s, "name", time.Minute)
	before, _, _ := look(s, t.Context(), "name")
	old := set.MasterAddr()
	set.Failover()
	set.AwaitFailover(old)
	eventually(t, "renewal at the new master", func() bool {
		entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: held.Owner, TTL: time.Minute}})
		if entries != nil && entries[0].State == driver.Lost {
			t.Fatal("the hold is lost", err)
		}
		return err == nil && entries[0].State == driver.Held
	})
	release(t, s, held)
	var res driver.Result
	eventually(t, "grant by the new master", func() (done bool) {
		var err error
		if res, err = s.Acquire(t.Context(), request("name", time.Minute)); err == nil && !res.Granted {
			t.Fatal("a name that is free is held")
		}
		return err == nil
	})
	if res.Token <= before.Token {
		t.Errorf("the token is %d after %d", res.Token, before.Token)
	}
}

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
