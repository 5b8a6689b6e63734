//go:build unix

package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/redisstore"
)

const bound = 20 * time.Second

// connect returns a client of package holdfast that reaches Redis at addr.
func connect(t *testing.T, addr string, config *holdfast.Config) *holdfast.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	store := redisstore.New(client, nil)
	locks := holdfast.New(store, config)
	t.Cleanup(func() {
		_ = locks.Close() // What it reports is the test's own doing.
		_ = store.Close()
		_ = client.Close()
	})
	return locks
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %v", what, bound)
		}
		time.Sleep(time.Millisecond)
	}
}

// A holder that is cut off knows that its lock is lost before anybody else can
// have it, wherever in its cycle of renewals the cut falls.
func TestCutOffHolder(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	other := connect(t, server.Addr, nil)
	const cuts, lanes, ttl = 40, 8, 600 * time.Millisecond
	margins := make(chan time.Duration, cuts)
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			for i := range cuts / lanes {
				margin, err := cutOff(t, server, other, fmt.Sprint(lane, "/", i), ttl)
				if err != nil {
					t.Error(err)
					return
				}
				margins <- margin
			}
		})
	}
	group.Wait()
	close(margins)
	smallest := bound
	for margin := range margins {
		smallest = min(smallest, margin)
	}
	if smallest <= 0 {
		t.Errorf("a lock had two holders for %v", -smallest)
	}
	t.Logf("the smallest margin of %d cuts is %v", cuts, smallest)
}

// cutOff returns how long before the grant to another client the lock of its
// former holder was over, by the deadline that Lock.Err goes by.
func cutOff(t *testing.T, server *servers.Redis, other *holdfast.Client, name string, ttl time.Duration) (time.Duration, error) {
	proxy := faultproxy.Start(t, server.Addr)
	holder := connect(t, proxy.Addr(), nil)
	lock, err := holder.Acquire(t.Context(), name, &holdfast.Options{TTL: ttl})
	if err != nil {
		return 0, err
	}
	timer := time.NewTimer(rand.N(2 * ttl))
	<-timer.C
	way := faultproxy.Direction(rand.IntN(2))
	proxy.Hold(way)
	defer proxy.Pass(way)
	next, err := other.Acquire(t.Context(), name, nil)
	granted := time.Now()
	if err != nil {
		return 0, err
	}
	if lock.Err() == nil {
		return 0, fmt.Errorf("%s: another client has the lock, and its first holder believes in it", name)
	}
	select {
	case <-lock.Context().Done(): // A timer says so; on a busy machine it may be late.
	case <-time.After(bound):
		return 0, fmt.Errorf("%s: the context of a lost lock goes on", name)
	}
	return granted.Sub(lock.Deadline()), next.Release()
}
