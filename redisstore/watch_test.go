//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func watchOf(t *testing.T, s *Store, name string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	late := time.AfterFunc(bound, cancel)
	defer late.Stop()
	signals, err := s.Watch(ctx, name)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return signals
}

func signalled(t *testing.T, what string, signals <-chan struct{}) {
	t.Helper()
	select {
	case <-signals:
	case <-time.After(bound):
		t.Fatalf("no signal after %s", what)
	}
}

// Whoever frees a lock, and however, its waiters are woken.
func TestForeignReleases(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for what, free := range map[string][]string{
		"DEL":      {"DEL", "lock:name"},
		"UNLINK":   {"UNLINK", "lock:name"},
		"FLUSHALL": {"FLUSHALL"},
		"FLUSHDB":  {"FLUSHDB"},
		"RENAME":   {"RENAME", "lock:name", "elsewhere"},
		"expiry":   {"PEXPIRE", "lock:name", "1"},
		"a script": {"EVAL", "return redis.call('DEL', KEYS[1])", "1", "lock:name"},
	} {
		server.Do("SET", "lock:name", "a stranger")
		signals := watchOf(t, s, "name")
		server.Do(free...)
		signalled(t, what, signals)
		eventually(t, "free lock", func() bool { return server.Do("EXISTS", "lock:name") == "0" })
	}
}

// Renewals of the holder, but for the first, wake nobody, and cost one GET each
// for all that wait in a process. Nothing is sent while nothing happens.
func TestIdleWaiters(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	url := "redis://" + server.Addr + "/3" // To look into another database would wake everybody.
	holder, waiter := openFromURL(t, url), openFromURL(t, url)
	held := grant(t, holder, "name", time.Minute)
	var all []<-chan struct{}
	for range 50 {
		all = append(all, watchOf(t, waiter, "name"))
	}
	if gets := numberOf(t, server, "get"); gets > 2 { // One is of the acquire script, for the counter.
		t.Errorf("50 watches of a name took %d GETs, want 2", gets)
	}
	server.Do("CONFIG", "RESETSTAT")
	const renewals = 10
	for i := range renewals {
		held.TTL += time.Minute
		renew(t, holder, held)
		eventually(t, "GET after a renewal", func() bool { return numberOf(t, server, "get") > i })
		if i > 0 {
			continue
		}
		for _, signals := range all {
			signalled(t, "the first renewal", signals)
		}
	}
	if gets := numberOf(t, server, "get"); gets != renewals {
		t.Errorf("%d renewals cost %d GETs, want as many", renewals, gets)
	}
	for _, signals := range all {
		select {
		case <-signals:
			t.Fatal("a renewal has woken a waiter")
		default:
		}
	}
	release(t, holder, held)
	for _, signals := range all {
		signalled(t, "a release", signals)
	}
}

// However many names are watched, there is one connection more.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for i := range 100 {
		watchOf(t, s, fmt.Sprint(i))
	}
	clients := func() int { return strings.Count(server.Do("CLIENT", "LIST"), "resp=3") }
	if n := clients(); n != 1 {
		t.Errorf("100 watches have %d connections, want 1", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the connection", func() bool { return clients() == 0 })
}

// A server without the feature says so, and at once.
func TestNoTracking(t *testing.T) {
	t.Parallel()
	old := servers.StartRedis(t, "--rename-command", "HELLO", "")
	limited := servers.StartRedis(t)
	limited.Do("ACL", "SETUSER", "limited", "on", ">word", "~*", "+@all", "-client|tracking")
	for what, s := range map[string]*Store{
		"a server without HELLO":     open(t, old.Addr, nil),
		"a user that must not track": openFromURL(t, "redis://limited:word@"+limited.Addr),
	} {
		if _, err := s.Watch(t.Context(), "name"); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("Watch with %s: %v, want ErrUnsupported", what, err)
		}
		release(t, s, grant(t, s, "name", time.Minute))
	}
}

// A connection that swallows everything is noticed, and another is made.
func TestWatchOnADeadConnection(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	var addr atomic.Value
	addr.Store(proxy.Addr())
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
	}})
	t.Cleanup(func() { _ = client.Close() })
	s := New(client, nil)
	t.Cleanup(func() { _ = s.Close() })
	server.Do("SET", "lock:name", "x")
	signals := watchOf(t, s, "name")
	addr.Store(server.Addr)
	proxy.Hold(faultproxy.Down)
	proxy.Hold(faultproxy.Up)
	server.Do("DEL", "lock:name")
	signalled(t, "the silence of a connection", signals)
	eventually(t, "signal on another connection", func() bool {
		server.Do("SET", "lock:name", "x")
		server.Do("DEL", "lock:name")
		select {
		case <-signals:
			return true
		default:
			return false
		}
	})
}

// A watch outlives its server.
func TestWatchAfterRestart(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	s := open(t, proxy.Addr(), nil)
	signals := watchOf(t, s, "name")
	server.RestartEmpty()
	signalled(t, "the end of the connection", signals)
	eventually(t, "signal after a restart", func() bool {
		server.Do("SET", "lock:name", "x")
		server.Do("DEL", "lock:name")
		select {
		case <-signals:
			return true
		default:
			return false
		}
	})
}

func TestWatchGivenUp(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	s := open(t, proxy.Addr(), nil)
	proxy.Hold(faultproxy.Down)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Watch(ctx, "name"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch: %v, want the end of its context", err)
	}
	proxy.Pass(faultproxy.Down)
	signals := watchOf(t, s, "name")
	release(t, s, grant(t, s, "name", time.Minute))
	signalled(t, "a release", signals)
}

// When a master of a cluster dies, the watches of its locks find the new one.
func TestWatchInAClusterThatFailsOver(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	client := clusterClient(t, cluster)
	s := New(client, nil)
	t.Cleanup(func() { _ = s.Close() })
	watches := map[string]<-chan struct{}{}
	for i := range 12 {
		watches[fmt.Sprint(i)] = watchOf(t, s, fmt.Sprint(i))
	}
	cluster.Masters[0].Kill()
	for name, signals := range watches {
		eventually(t, "signal of "+name, func() bool {
			req := request(name, time.Minute)
			if res, _ := s.Acquire(t.Context(), req); res.Granted {
				_, _ = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner})
			}
			select {
			case <-signals:
				return true
			default:
				return false
			}
		})
	}
}

// What is of another type under a lock's key is waited for as a lock is.
func TestWatchOfAnotherType(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	server.Do("LPUSH", "lock:name", "x")
	signals := watchOf(t, s, "name")
	server.Do("DEL", "lock:name")
	signalled(t, "the end of what is no lock", signals)
}
