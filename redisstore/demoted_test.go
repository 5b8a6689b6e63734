//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
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
	type try struct {
		what string
		verb func() error
	}
	var tries []try
	for _, kind := range []struct {
		name          string
		limit, waiter int
	}{{"exclusive", 1, 0}, {"waited for", 1, 1}, {"limited", 3, 0}, {"limited and waited for", 3, 1}, {"shared", driver.Shared, 0}} {
		for _, verb := range []string{"renew", "release", "acquire", "break"} {
			s := over(t, redis.NewClient(&redis.Options{
				Addr: "one.address:6379", ContextTimeoutEnabled: true, PoolSize: 1, PipelinePoolSize: 1, MaxRetries: -1,
				Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, master.Load().(string))
				},
			}), nil)
			req := request(kind.name+verb, time.Minute)
			req.Limit = kind.limit
			res, err := s.Acquire(t.Context(), req)
			if err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			if kind.waiter > 0 {
				waiter := request(req.Name, time.Minute)
				waiter.Place = 30 * time.Second
				if res, err := s.Acquire(t.Context(), waiter); err != nil || !res.Waiting {
					t.Fatal(res, err)
				}
			}
			tries = append(tries, try{kind.name + ": " + verb, func() error {
				done, err := false, error(nil)
				switch verb {
				case "renew":
					var entries []driver.Entry
					entries, err = s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: 2 * time.Minute}})
					done = err == nil && entries[0].State == driver.Held
				case "release":
					done, err = s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
				case "acquire":
					again := request("new "+req.Name, time.Minute)
					again.Limit = kind.limit
					res, err = s.Acquire(t.Context(), again)
					done = res.Granted
				case "break":
					var ended []driver.Record
					ended, err = s.Break(t.Context(), req.Name, res.Token)
					done = len(ended) == 1
				}
				if err == nil && !done {
					err = errors.New("it has another result")
				}
				return err
			}})
		}
	}
	eventually(t, "replica that has all", func() bool {
		return infoField(first, "master_repl_offset") == infoField(second, "master_repl_offset")
	})
	second.Do("REPLICAOF", "NO", "ONE")
	follow(t, first, second)
	master.Store(second.Addr)
	for _, try := range tries {
		t.Run(try.what, func(t *testing.T) {
			refusal := try.verb()
			if !driver.IsNotApplied(refusal) {
				t.Errorf("at the old master: %v, want that nothing was applied", refusal)
			}
			if err := try.verb(); err != nil {
				t.Error(fmt.Errorf("the second request: %w", err))
			}
		})
	}
}

// The connection for notices that stays at the old master, a replica now, goes on: what the scripts
// of the new one publish reaches it.
func TestNoticesAtAnOldMaster(t *testing.T) {
	t.Parallel()
	first, second := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t, "--repl-diskless-sync-delay", "0")
	follow(t, second, first)
	waits := open(t, first.Addr, nil)
	told := make(chan int64, 10)
	defer waits.Notify(func(_, _ string, token int64) { told <- token })()
	held := grant(t, waits, "name", time.Minute)
	req := request("name", time.Minute)
	req.Place = time.Minute
	res, err := waits.Acquire(t.Context(), req)
	if err != nil || !res.Waiting {
		t.Fatal(res, err)
	}
	if token := <-told; token != 0 {
		t.Fatalf("the first notice has token %d, want that of the connection", token)
	}
	eventually(t, "replica that has all", func() bool {
		return infoField(first, "master_repl_offset") == infoField(second, "master_repl_offset")
	})
	second.Do("REPLICAOF", "NO", "ONE")
	follow(t, first, second)
	release(t, open(t, second.Addr, nil), held)
	if token := <-told; token != res.Token {
		t.Errorf("told token %d, want %d", token, res.Token)
	}
}
