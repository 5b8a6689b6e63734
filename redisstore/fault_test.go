//go:build unix

package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
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
	at := time.UnixMicro(next.Token()) // The token is the server's clock, which is ours as well.
	return at.Sub(lock.Deadline()), next.Release()
}

// A waiter gets a lock that was freed by a foreign DEL.
func TestForeignDel(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	locks := connect(t, server.Addr, nil)
	var total time.Duration
	const rounds = 20
	for range rounds {
		server.Do("SET", "lock:name", "a stranger", "PX", "3600000")
		taken := make(chan time.Time, 1)
		go func() {
			lock, err := locks.Acquire(t.Context(), "name", nil)
			if err != nil {
				t.Error(err)
			} else {
				taken <- time.Now()
				_ = lock.Release() // The next round shows.
			}
			close(taken)
		}()
		awaitPlace(t, server, "lock:", "name")
		freed := time.Now()
		server.Do("DEL", "lock:name")
		total += (<-taken).Sub(freed)
		<-taken
	}
	t.Logf("a waiter has a lock %v after a foreign DEL, on average", total/rounds)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	locks, err := holdfast.Open(t.Context(), "redis://"+server.Addr+"/3?prefix=my:&min_replicas=0&restart_guard=0s", nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := locks.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := server.Do("INFO", "keyspace"); !strings.Contains(got, "db3:keys=2") {
		t.Errorf("the keys of database 3: %s", got)
	}
	if err := errors.Join(lock.Release(), locks.Close()); err != nil {
		t.Error(err)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"redis://":                                 false,
		"redis://:6379":                            false,
		"redis+cluster://:6379":                    false,
		"redis://user:SecretWord@host:1234/7":      true,
		"redis://[::1]:7000":                       true,
		"rediss://host?server_name=other":          true,
		"redis://host?prefix=":                     true,
		"redis+sentinel://a:1/main/2?nodes=b:2,c":  true,
		"redis+cluster://a:1?nodes=b:2,c&tls=true": true,
		"redis://host?prefx=SecretWord":            false,
		"redis://host?restart_guard=SecretWord":    false,
		"redis://host?min_replicas=-1":             false,
		"redis://host?tls=true":                    false,
		"redis://host/SecretWord":                  false,
		"redis://host/1/2":                         false,
		"redis://host#SecretWord":                  false,
		"redis:SecretWord":                         false,
		"redis+sentinel://a:1":                     false,
		"redis+cluster://a:1/1":                    false,
		"redis+cluster://a:1?restart_guard=1m":     false,
		"rediss://host?ca_file=/no/such/file":      false,
	} {
		storecheck.Opens(t, text, good)
	}
}

// awaitPlace returns when the queue of a lock has a place.
func awaitPlace(t *testing.T, server *servers.Redis, prefix, name string) {
	t.Helper()
	eventually(t, "place", func() bool { return server.Do("EXISTS", prefix+"\x1fqueue\x1f"+prefix+name) == "1" })
}
