//go:build unix

package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// Every contender does what it is measured at: it keeps others out until it lets go.
func TestRedisContenders(t *testing.T) {
	server := servers.StartRedis(t)
	for _, c := range Redis() {
		t.Run(c.Name, func(t *testing.T) {
			server.Do("FLUSHALL")
			exclude(t, c, []string{server.Addr})
		})
	}
}

func TestEtcdContenders(t *testing.T) {
	addrs := servers.EtcdAddrs(servers.StartEtcdCluster(t, 1))
	for _, c := range Etcd() {
		t.Run(c.Name, func(t *testing.T) { exclude(t, c, addrs) })
	}
}

func TestQuorumContenders(t *testing.T) {
	var addrs []string
	for _, server := range servers.StartRedises(t, 3) {
		addrs = append(addrs, server.Addr)
	}
	for _, c := range Quorum() {
		t.Run(c.Name, func(t *testing.T) { exclude(t, c, addrs) })
	}
}

// The libraries that docs/migrating.md has share locks with Redis exclude us, and we exclude them.
func TestForeignLibraries(t *testing.T) {
	t.Parallel()
	addrs := []string{servers.StartRedis(t).Addr}
	contenders := Redis()
	ours := prefixed{open(t, contenders[0], addrs), ""}
	for _, c := range contenders[1:] {
		if c.Name == "redsync" || c.Name == "redislock" {
			other := prefixed{open(t, c, addrs), "lock:"}
			excludeEachOther(t, other, ours)
			excludeEachOther(t, ours, other)
		}
	}
}

// prefixed is a Locker with another prefix of names.
type prefixed struct {
	Locker
	prefix string
}

func (l prefixed) Acquire(ctx context.Context, name string) (Held, error) {
	return l.Locker.Acquire(ctx, l.prefix+name)
}

// exclude lets two clients of a kind want one name.
func exclude(t *testing.T, c Contender, addrs []string) {
	t.Helper()
	excludeEachOther(t, open(t, c, addrs), open(t, c, addrs))
}

func excludeEachOther(t *testing.T, first, second Locker) {
	t.Helper()
	held, err := first.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := second.Acquire(brief, "job"); err == nil {
		t.Fatal("two hold one lock")
	}
	var next Held
	var group sync.WaitGroup
	group.Go(func() { next, err = second.Acquire(t.Context(), "job") })
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if group.Wait(); err != nil {
		t.Fatalf("the waiter: %v", err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Errorf("release by the waiter: %v", err)
	}
}

const ttl = 10 * time.Second

func open(t *testing.T, c Contender, addrs []string) Locker {
	t.Helper()
	locker, err := c.Open(Options{Servers: addrs, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(); err != nil {
			t.Error(err)
		}
	})
	return locker
}
