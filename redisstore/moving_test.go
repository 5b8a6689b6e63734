//go:build unix

package redisstore

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// connectCluster returns a client of a cluster with a store and connections of its own.
func connectCluster(t *testing.T, cluster *servers.RedisCluster) (*holdfast.Client, *redis.ClusterClient) {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	return locksOf(t, over(t, client, nil)), client
}

// A move moves the slot of a name between two masters, there and back.
type move struct {
	cluster  *servers.RedisCluster
	slot     int
	from, to *servers.Redis
}

func moveOf(t *testing.T, cluster *servers.RedisCluster, client *redis.ClusterClient, key string) *move {
	t.Helper()
	slot, err := client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	master, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	m := &move{cluster: cluster, slot: int(slot)}
	for _, server := range cluster.Masters {
		if server.Addr == master.Options().Addr {
			m.from = server
		} else {
			m.to = server
		}
	}
	return m
}

func (m *move) begin() { m.cluster.BeginMove(m.slot, m.from, m.to) }

func (m *move) end() {
	m.cluster.MoveKeys(m.slot, m.from, m.to)
	m.cluster.EndMove(m.slot, m.from, m.to)
	m.from, m.to = m.to, m.from
}

// Slots move back and forth while locks on them are taken, waited for and renewed: no
// lock is granted twice, no token falls, and no waiter fails. A free lock whose slot moves is not
// "held".
func TestLocksOnMovingSlots(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	names := []string{"{a}1", "{a}2", "{b}1", "{c}1"}
	var holders, last [4]atomic.Int64
	var grants, double, falling atomic.Int64
	stopped := make(chan struct{})
	var workers sync.WaitGroup
	var client *redis.ClusterClient
	for w := range 6 {
		locks, c := connectCluster(t, cluster)
		client = c
		workers.Go(func() {
			for i := w; ; i++ {
				select {
				case <-stopped:
					return
				default:
				}
				n := i % len(names)
				lock, err := locks.Acquire(t.Context(), names[n], &holdfast.Options{TTL: 2 * time.Second, Wait: time.Minute})
				if err != nil {
					t.Errorf("worker %d: Acquire of %s: %v", w, names[n], err)
					return
				}
				grants.Add(1)
				if holders[n].Add(1) != 1 {
					double.Add(1)
				}
				if last[n].Swap(lock.Token()) >= lock.Token() {
					falling.Add(1)
				}
				<-time.After(time.Duration(i%7) * time.Millisecond)
				holders[n].Add(-1)
				if err := lock.Release(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("worker %d: Release of %s: %v", w, names[n], err)
				}
			}
		})
	}
	var moves []*move
	tags := []string{"{a}", "{b}", "{c}"}
	for _, name := range tags {
		moves = append(moves, moveOf(t, cluster, client, "lock:"+name))
	}
	n := rounds(t, 6)
	for i := range n {
		m := moves[i%len(moves)]
		m.begin()
		third, _ := connectCluster(t, cluster)
		if _, err := third.TryAcquire(t.Context(), tags[i%len(tags)]+"free", nil); !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryAcquire of a free lock whose slot moves: %v, want ErrUnavailable", err)
		}
		<-time.After(100 * time.Millisecond)
		m.end()
		before := grants.Load()
		for deadline := time.Now().Add(bound); grants.Load() < before+20; {
			if time.Now().After(deadline) {
				t.Fatalf("%d grants within %v after move %d", grants.Load()-before, bound, i)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	close(stopped)
	workers.Wait()
	t.Logf("%d moves, %d grants, %d double, %d tokens falling", n, grants.Load(), double.Load(), falling.Load())
	if double.Load() > 0 || falling.Load() > 0 {
		t.Errorf("%d of %d grants were of a held lock, and %d tokens did not rise", double.Load(), grants.Load(), falling.Load())
	}
}
