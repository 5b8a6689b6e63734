//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Two acquisitions each of two free names in one run get tokens of their own, as many as they have
// asked for, those of a name in their order, and the counter has passed all.
func TestTokensOfOneRun(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	ahead := time.Now().Add(time.Hour).UnixMicro() // The clock does not raise it.
	server.Do("SET", s.prefix+counterSuffix, strconv.FormatInt(ahead, 10))
	greatest, owners := ahead, map[int64]*call{}
	for _, tokens := range []int{1, 3} {
		before, last := greatest, map[string]int64{}
		var all []*call
		for _, name := range []string{"a", "a", "b", "b", "b"} {
			req := request(name, time.Minute)
			req.Place, req.Tokens = time.Minute, tokens
			all = append(all, s.acquireCall(&req))
		}
		sendTogether(s, all[:4]...)
		sendTogether(s, all[4])
		for i, c := range all {
			token, granted := c.reply.(int64)
			if !granted {
				token, _ = c.reply.([]any)[1].(int64)
			}
			if least := max(before, last[c.lock]); token <= least || granted != (i == 0 || i == 2) || i == 4 && token <= greatest {
				t.Errorf("blocks of %d: call %d is granted: %v, its token is %d, want more than %d", tokens, i, granted, token, least)
			}
			for own := token; own < token+int64(tokens); own++ {
				if owners[own] != nil {
					t.Errorf("blocks of %d: call %d has the token %d of another", tokens, i, own)
				}
				owners[own], last[c.lock], greatest = c, own, max(greatest, own)
			}
		}
		server.Do("DEL", "lock:a", "lock:b", "lock:"+queueInfix+"lock:a", "lock:"+queueInfix+"lock:b")
	}
}

// A connection that hangs holds up other locks for a moment only. A release waits nevertheless for
// the acquisition that it undoes and that is in flight there.
func TestHungConnection(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	var dialed atomic.Int32
	s := over(t, redis.NewClient(&redis.Options{
		Addr: server.Addr, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialed.Add(1) == 1 {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}), nil)
	held := grant(t, s, "held", time.Minute)
	proxy.Hold(faultproxy.Up)
	began := time.Now()
	req := request("name", time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), minInline/2)
	defer cancel()
	if _, err := s.Acquire(ctx, req); err == nil || driver.IsNotApplied(err) {
		t.Fatalf("Acquire on a connection that hangs: %v", err)
	}
	released := make(chan bool, 1)
	go func() {
		ours, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		released <- ours && err == nil
	}()
	grant(t, s, "other", time.Minute)
	outcomes, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: time.Minute}})
	if err != nil || outcomes[0].State != driver.Held {
		t.Errorf("renewal beside a connection that hangs: %v, %v", outcomes, err)
	}
	if took := time.Since(began); took > requestBound/2 {
		t.Errorf("a connection that hangs holds up other locks for %v", took)
	}
	if len(released) > 0 {
		t.Error("a release has not waited for the acquisition in flight")
	}
	proxy.Pass(faultproxy.Up)
	if !<-released || server.Do("EXISTS", "lock:name") != "0" {
		t.Error("a release has overtaken the acquisition that it undoes")
	}
}

// A master of a cluster that hangs holds up no lock of another, however many requests there are,
// and however little time they have.
func TestHungMaster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, "--cluster-require-full-coverage", "no")
	_, client := connectCluster(t, cluster)
	s := over(t, client, nil)
	var renewals []driver.RenewRequest
	served := map[int]bool{}
	for i := range 30 {
		req := grant(t, s, fmt.Sprint("name ", i), time.Minute)
		master, err := client.MasterForKey(t.Context(), s.prefix+req.Name)
		if err != nil {
			t.Fatal(err)
		}
		served[i] = master.Options().Addr != cluster.Masters[0].Addr
		renewals = append(renewals, driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: time.Minute})
	}
	cluster.Masters[0].Pause()
	defer cluster.Masters[0].Resume()
	var group sync.WaitGroup
	for range 3 * inFlight {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), requestBound/2)
			defer cancel()
			entries, _ := s.Renew(ctx, renewals)
			for i, e := range entries {
				if served[i] && e.State != driver.Held {
					t.Errorf("name %d, on a master that serves: %v", i, e.State)
				}
			}
		})
	}
	group.Wait()
}

// Of many holds in the way of a request, the oldest is described, which a rate limit has a waiter
// look for again.
func TestOldestInTheWay(t *testing.T) {
	t.Parallel()
	const limit = 40
	s := open(t, servers.StartRedis(t).Addr, nil)
	_, first := share(t, s, "a", limit, time.Minute)
	for i := range limit - 1 {
		share(t, s, "a", limit, time.Duration(i+2)*time.Minute)
	}
	req := request("a", time.Minute)
	req.Limit = limit
	if res, err := s.Acquire(t.Context(), req); err != nil || res.Held.Token != first {
		t.Errorf("Acquire: %+v, %v, want the hold with token %d in the way", res, err, first)
	}
}
