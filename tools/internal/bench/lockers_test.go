//go:build unix

package bench

import (
	"context"
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

// exclude lets two clients of a kind want one name.
func exclude(t *testing.T, c Contender, addrs []string) {
	t.Helper()
	first, second := open(t, c, addrs), open(t, c, addrs)
	held, err := first.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := second.Acquire(brief, "job"); err == nil {
		t.Fatal("two hold one lock")
	}
	type result struct {
		held Held
		err  error
	}
	got := make(chan result, 1)
	go func() {
		held, err := second.Acquire(t.Context(), "job")
		got <- result{held, err}
	}()
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	next := <-got
	if next.err != nil {
		t.Fatalf("the waiter: %v", next.err)
	}
	if err := next.held.Release(t.Context()); err != nil {
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
