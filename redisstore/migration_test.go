//go:build unix

package redisstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// masterOf returns the master of a key, and another one.
func masterOf(t *testing.T, cluster *servers.RedisCluster, client *redis.ClusterClient, key string) (from, to *servers.Redis) {
	t.Helper()
	master, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for i, server := range cluster.Masters {
		if server.Addr == master.Options().Addr {
			return server, cluster.Masters[(i+1)%len(cluster.Masters)]
		}
	}
	t.Fatalf("%s is no master", master.Options().Addr)
	return nil, nil
}

// While a slot of a cluster moves, holds are renewed, found and released, held locks
// are held, and free ones can be had later; wherever the keys are just then.
func TestMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	for _, opts := range []*Options{{}, {MinReplicas: 1}, {Prefix: "{tag}:"}} {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
		s := New(client, opts)
		t.Cleanup(func() { _ = s.Close(); _ = client.Close() })
		names := []string{"{x}1", "{x}2", "{x}3", "{x}free"}
		slot := int(slotOf(s.lockKey(names[0])))
		from, to := masterOf(t, cluster, client, s.lockKey(names[0]))
		var held []driver.AcquireRequest
		for _, name := range names[:3] {
			held = append(held, grant(t, s, name, time.Minute))
		}
		release(t, s, grant(t, s, "{x}free", time.Minute)) // Its connections are there.
		before, _, _ := s.Lookup(t.Context(), names[0])

		check := func(when string) {
			t.Helper()
			reqs := make([]driver.RenewRequest, len(held))
			for i, req := range held {
				reqs[i] = driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: 2 * time.Minute}
			}
			outcomes, err := s.Renew(t.Context(), reqs)
			for _, outcome := range outcomes {
				if outcome != driver.Renewed {
					t.Errorf("%v, %s: Renew: %v, %v", opts, when, outcomes, err)
				}
			}
			if res, err := s.Acquire(t.Context(), held[0]); err != nil || !res.Granted || res.Token != before.Token {
				t.Errorf("%v, %s: a repetition: %+v, %v, want token %d", opts, when, res, err, before.Token)
			}
			res, err := s.Acquire(t.Context(), request(names[1], time.Minute))
			if err != nil || res.Granted || res.Held.Remaining < time.Minute {
				t.Errorf("%v, %s: Acquire of a held lock: %+v, %v", opts, when, res, err)
			}
			if rec, found, err := s.Lookup(t.Context(), names[2]); err != nil || !found || rec.Holder != "host/1/x" {
				t.Errorf("%v, %s: Lookup: %+v, %v, %v", opts, when, rec, found, err)
			}
			free := request(names[3], time.Minute)
			res, err = s.Acquire(t.Context(), free)
			if later := (*driver.RetryError)(nil); err != nil && !errors.As(err, &later) || err == nil && !res.Granted {
				t.Errorf("%v, %s: Acquire of a free lock: %+v, %v, want it granted or a RetryError", opts, when, res, err)
			}
			if res.Granted {
				release(t, s, free)
			}
			if !s.prefixHasTag { // Names on other slots are not concerned.
				release(t, s, grantLater(t, s, "{other}", time.Minute))
			}
		}
		check("before")
		cluster.BeginMove(slot, from, to)
		check("with all keys in the old place")
		host, port := "127.0.0.1", to.Addr[len("127.0.0.1:"):]
		from.Do("MIGRATE", host, port, s.lockKey(names[0]), "0", "5000")
		check("with one lock in the new place")
		from.Do("MIGRATE", host, port, s.counterKey(s.hashTagOf(s.lockKey(names[0]))), "0", "5000")
		check("with the counter in the new place")
		cluster.MoveKeys(slot, from, to)
		check("with all keys in the new place")
		cluster.EndMove(slot, from, to)
		check("after")
		release(t, s, grantLater(t, s, names[3], time.Minute))
		for _, req := range held {
			if !release(t, s, req) {
				t.Errorf("%v: the lock %q is gone", opts, req.Name)
			}
		}
	}
}

// grantLater takes a lock that is free, as soon as it can be granted.
func grantLater(t *testing.T, s *Store, name string, ttl time.Duration) driver.AcquireRequest {
	t.Helper()
	req := request(name, ttl)
	eventually(t, fmt.Sprintf("grant of %q", name), func() bool {
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	return req
}
