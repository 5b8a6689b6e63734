//go:build unix

package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
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
