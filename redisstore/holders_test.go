//go:build unix

package redisstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// hashOf and endsOf are the keys of the holders of lock:name.
const (
	hashOf = "lock:\x1fholders\x1flock:name"
	endsOf = "lock:\x1fends\x1flock:name"
)

// sharing returns a request for a hold with a limit.
func sharing(name string, ttl time.Duration, limit int) olddriver.AcquireRequest {
	req := request(name, ttl)
	req.Limit = limit
	return req
}

// join acquires a hold that must be granted.
func join(t *testing.T, s *engine, name string, ttl time.Duration, limit int) olddriver.AcquireRequest {
	t.Helper()
	req := sharing(name, ttl, limit)
	if res := acquire(t, s, req); !res.Granted {
		t.Fatalf("Acquire of %q with limit %d: %+v, want it granted", name, limit, res)
	}
	return req
}

// refuses checks that a hold is refused.
func refuses(t *testing.T, s *engine, name string, limit int) olddriver.AcquireResult {
	t.Helper()
	res := acquire(t, s, sharing(name, time.Minute, limit))
	if res.Granted {
		t.Fatalf("Acquire of %q with limit %d: %+v, want it refused", name, limit, res)
	}
	return res
}

// leftOf returns how long a key lasts.
func leftOf(t *testing.T, server *servers.Redis, key string) time.Duration {
	t.Helper()
	left, err := strconv.Atoi(server.Do("PTTL", key))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(left) * time.Millisecond
}

func isAbout(got, want time.Duration) bool { return got > want-5*time.Second && got <= want }

// The key of the lock lasts as long as the last of its holders, clients of other kinds find it
// taken, and it is gone with the last holder that is released. The renewal of one holder prolongs no
// other.
func TestKeysOfHolders(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	short := join(t, s, "name", time.Minute, olddriver.Shared)
	long := join(t, s, "name", time.Hour, 3)
	want := []string{"lock:\x1fcounter", endsOf, hashOf, "lock:name"}
	if got := keys(server); !slices.Equal(got, want) {
		t.Errorf("the keys of two holders are %q, want %q", got, want)
	}
	if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Hour) {
		t.Errorf("the lock lasts for %v, want an hour", left)
	}
	for _, key := range []string{hashOf, endsOf} {
		if left := leftOf(t, server, key); left < time.Hour || left > time.Hour+2*time.Minute {
			t.Errorf("the key %q lasts for %v", key, left)
		}
	}
	if got := server.Do("SET", "lock:name", "x", "NX"); got == "OK" {
		t.Error("a foreign SET NX took a lock that is held")
	}
	value := server.Do("GET", "lock:name")
	if strings.Contains(value, "\n") || strings.HasPrefix(value, "released:") || strings.Contains(value, short.Owner) {
		t.Errorf("the value %q could be that of an exclusive hold or of a keep", value)
	}
	renew(t, s, short)
	rec, _, err := s.Lookup(t.Context(), "name")
	if err != nil || len(rec.Others) != 1 || rec.Limit != olddriver.Shared || rec.Others[0].Limit != 3 {
		t.Errorf("Lookup: %+v, %v", rec, err)
	}
	for _, again := range []olddriver.AcquireRequest{short, long} {
		if res := acquire(t, s, again); !res.Granted || res.Token != rec.Token && res.Token != rec.Others[0].Token {
			t.Errorf("a repetition: %+v, want a token of %+v", res, rec)
		}
	}
	release(t, s, long)
	if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Minute) {
		t.Errorf("after the release of the last that ends, the lock lasts for %v, want a minute", left)
	}
	long = join(t, s, "name", 2*time.Second, olddriver.Shared)
	if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Minute) {
		t.Errorf("beside a new holder with a shorter TTL, the lock lasts for %v, want a minute", left)
	}
	short.TTL = 2 * time.Hour
	if renew(t, s, short) != olddriver.Renewed {
		t.Error("a hold is gone")
	}
	if left := leftOf(t, server, hashOf); left < 2*time.Hour {
		t.Errorf("after a renewal for two hours the holders are kept for %v", left)
	}
	rec, _, _ = s.Lookup(t.Context(), "name")
	if len(rec.Others) != 1 || !isAbout(rec.Remaining, 2*time.Hour) || rec.Others[0].Remaining > 2*time.Second {
		t.Errorf("after the renewal of one: %+v", rec)
	}
	release(t, s, short)
	release(t, s, long)
	if got := keys(server); !slices.Equal(got, want[:1]) {
		t.Errorf("after the releases the keys are %q, want the counter only", got)
	}
	kept := join(t, s, "name", time.Hour, 1)
	if ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: kept.Owner, Keep: time.Minute}); err != nil || !ended {
		t.Fatalf("Release with Keep: %v, %v", ended, err)
	}
	if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Minute) {
		t.Errorf("a keep of a minute leaves the lock for %v", left)
	}
}

// After a DEL of the lock by hand its holders are over: they cannot renew or release what others
// hold then, and the next holders are a generation of their own.
func TestHoldersAfterAForeignDEL(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	var old []olddriver.AcquireRequest
	over := func(when string) {
		t.Helper()
		for i, req := range old {
			if renew(t, s, req) != olddriver.RenewLost || claim(t, s, req).Granted || release(t, s, req) {
				t.Errorf("%s: holder %d of a lock that was deleted renews, claims or releases", when, i)
			}
		}
	}
	for range 3 {
		old = append(old, join(t, s, "name", time.Hour, 5))
	}
	server.Do("DEL", "lock:name")
	over("the lock is free")
	writer := grant(t, s, "name", time.Minute)
	over("a writer has the lock")
	release(t, s, writer)
	server.Do("SET", "lock:name", "a stranger's", "PX", "60000")
	over("a stranger has the lock")
	refuses(t, s, "name", olddriver.Shared)
	refuses(t, s, "name", 5)
	server.Do("DEL", "lock:name")
	next := join(t, s, "name", time.Minute, 5)
	over("there is another generation")
	rec, _, err := s.Lookup(t.Context(), "name")
	if err != nil || rec.Others != nil || !isAbout(leftOf(t, server, "lock:name"), time.Minute) {
		t.Errorf("the next generation is %+v, %v", rec, err)
	}
	release(t, s, join(t, s, "name", time.Hour, olddriver.Shared))
	if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Minute) {
		t.Errorf("after the release of the last that ends, the lock lasts for %v, want a minute", left)
	}
	release(t, s, next)
	if server.Do("EXISTS", "lock:name", hashOf, endsOf) != "0" {
		t.Error("the lock is not free after the release of its only holder")
	}
}

// After a loss of one of the keys beside the lock, as by an eviction, the lock keeps others out until
// the end of the last holder, whichever of them is released; the slots that were granted count as well.
func TestEvictedHolders(t *testing.T) {
	t.Parallel()
	for _, key := range []string{hashOf, endsOf} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			s := open(t, server.Addr, nil)
			forgotten := join(t, s, "name", time.Hour, 2)
			server.Do("DEL", key)
			refuses(t, s, "name", 0)
			refuses(t, s, "name", 1)
			if renew(t, s, forgotten) != olddriver.RenewLost || release(t, s, forgotten) {
				t.Error("a holder that is forgotten renews or releases")
			}
			for range 2 {
				known := join(t, s, "name", time.Minute, 2)
				for _, key := range []string{hashOf, endsOf} {
					if left := leftOf(t, server, key); left < time.Minute {
						t.Errorf("after a join the key %q lasts for %v", key, left)
					}
				}
				refuses(t, s, "name", 2)
				if renew(t, s, known) != olddriver.Renewed || !release(t, s, known) {
					t.Error("a holder that is known cannot renew and release")
				}
			}
			refuses(t, s, "name", 0)
			if left := leftOf(t, server, "lock:name"); !isAbout(left, time.Hour) {
				t.Errorf("a holder that is forgotten still relies on its hour, and the lock lasts for %v", left)
			}
			if rec, found, err := s.Lookup(t.Context(), "name"); err != nil || !found || !isAbout(rec.Remaining, time.Hour) {
				t.Errorf("Lookup: %+v, %v, %v", rec, found, err)
			}
			if _, found, err := s.Break(t.Context(), olddriver.BreakRequest{Name: "name"}); err != nil || !found {
				t.Errorf("Break: %v, %v", found, err)
			}
			grant(t, s, "name", time.Minute)
		})
	}
}

// A text that imitates the state of holders is a lock of another kind of client.
func TestImitatedHolders(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for _, value := range []string{"shared:", "shared:5", "shared:5 1 0 1 1", "shared:5 0 0 0 0", "shared:5 1 0 1 1 1"} {
		server.Do("SET", "lock:name", value)
		refuses(t, s, "name", 0)
		refuses(t, s, "name", olddriver.Shared)
		refuses(t, s, "name", 5)
		if rec, found, err := s.Lookup(t.Context(), "name"); err != nil || !found || rec.Token != 0 || rec.Others != nil {
			t.Errorf("%q: Lookup: %+v, %v, %v", value, rec, found, err)
		}
		server.Do("DEL", "lock:name")
	}
}

// A holder that has died keeps others out until its own end, whatever the others do, and its slot
// is free then.
func TestDeadHolders(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	const ttl = 300 * time.Millisecond
	join(t, s, "readers", ttl, olddriver.Shared)
	lives := join(t, s, "readers", ttl, olddriver.Shared)
	writer := enqueue(t, s, "readers")
	release(t, s, lives)
	if outcome := renew(t, s, writer); outcome != olddriver.RenewQueued {
		t.Errorf("while a reader holds the lock, the place of a writer is %v", outcome)
	}
	eventually(t, "writer", func() bool { return renew(t, s, writer) == olddriver.Renewed })

	join(t, s, "slots", ttl, 2)
	stays := join(t, s, "slots", time.Minute, 2)
	refuses(t, s, "slots", 2)
	waiter := queueOf("slots")
	waiter.Limit = 2
	if res := acquire(t, s, waiter); !res.Queued || !res.First {
		t.Fatalf("Acquire: %+v, want a place", res)
	}
	notices := noticesOf(t, s)
	eventually(t, "admission by the renewal of another holder", func() bool { return renew(t, s, stays) == olddriver.Renewed && len(notices) > 0 })
	expect(t, notices, olddriver.Granted, waiter)
	refuses(t, s, "slots", 2)
	release(t, s, waiter)
	join(t, s, "slots", time.Minute, 2)
	refuses(t, s, "slots", 2)
}

// On a full server nobody is granted a hold, and those that there are can be renewed and released.
func TestHoldersOnAFullServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	first := join(t, s, "name", time.Minute, 3)
	second := join(t, s, "name", time.Minute, 3)
	waiter := queueOf("name")
	waiter.Limit = 1
	if res := acquire(t, s, waiter); !res.Queued {
		t.Fatalf("Acquire: %+v, want a place", res)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	for _, name := range []string{"name", "free"} {
		for _, limit := range []int{olddriver.Shared, 10} {
			if _, err := s.Acquire(t.Context(), sharing(name, time.Minute, limit)); name == "free" && (!driver.IsNotApplied(err) || !strings.Contains(err.Error(), "memory")) {
				t.Errorf("Acquire of %q on a full server: %v", name, err)
			}
		}
	}
	first.TTL = time.Hour
	if renew(t, s, first) != olddriver.Renewed || !isAbout(leftOf(t, server, "lock:name"), time.Hour) || renew(t, s, second) != olddriver.Renewed {
		t.Error("a hold cannot be renewed")
	}
	if !release(t, s, second) || !release(t, s, first) {
		t.Error("a hold cannot be released")
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if outcome := renew(t, s, waiter); outcome != olddriver.Renewed {
		t.Errorf("the renewal of the place: %v", outcome)
	}
	refuses(t, s, "name", 0)
	release(t, s, waiter)
	if server.Do("EXISTS", "lock:name", hashOf, endsOf) != "0" {
		t.Error("something is left of the holders")
	}
}

// A server that may have forgotten locks grants no hold beside those that it has.
func TestGuardAndHolders(t *testing.T) {
	t.Parallel()
	const guard = 5 * time.Second // what follows the loss of data takes less
	server := servers.StartRedis(t)
	s := open(t, server.Addr, &Options{RestartGuard: guard})
	abstains(t, s, time.Now(), guard)
	held := join(t, s, "name", time.Minute, olddriver.Shared)
	waiter := enqueue(t, s, "name")
	server.Do("DEL", s.guardKey()) // as after a loss of data
	for _, name := range []string{"name", "free"} {
		res, err := s.Acquire(t.Context(), sharing(name, time.Minute, olddriver.Shared))
		if name == "free" && (err == nil || !strings.Contains(err.Error(), "RestartGuard")) || res.Granted {
			t.Errorf("Acquire of %q: %+v, %v", name, res, err)
		}
	}
	if renew(t, s, held) != olddriver.Renewed || !release(t, s, held) {
		t.Error("a server that abstains does not renew or release")
	}
	if server.Do("EXISTS", "lock:name") != "0" {
		t.Fatalf("a server that abstains has admitted %q", server.Do("GET", "lock:name"))
	}
	eventually(t, "admission", func() bool { return renew(t, s, waiter) == olddriver.Renewed })
}

// With MinReplicas a hold beside others is confirmed or undone, a renewal is confirmed or unknown,
// and those that are admitted together are asked to claim.
func TestReplicasAndHolders(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	s := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	writer := grantLater(t, s, "name", time.Minute)
	var readers []olddriver.AcquireRequest
	for range 2 {
		reader := queueOf("name")
		reader.Limit = olddriver.Shared
		if res := acquire(t, s, reader); !res.Queued {
			t.Fatalf("Acquire: %+v, want a place", res)
		}
		readers = append(readers, reader)
	}
	notices := noticesOf(t, s)
	release(t, s, writer)
	for _, reader := range readers {
		expect(t, notices, olddriver.Ask, reader)
		if res := claim(t, s, reader); !res.Granted {
			t.Errorf("a claim: %+v", res)
		}
	}
	replica.Pause()
	if res, err := s.Acquire(t.Context(), sharing("name", time.Minute, olddriver.Shared)); err == nil || !strings.Contains(err.Error(), "0 replicas have confirmed") {
		t.Errorf("a hold that no replica has: %+v, %v", res, err)
	}
	rec, _, err := s.Lookup(t.Context(), "name")
	if err != nil || len(rec.Others) != 1 {
		t.Errorf("a hold that no replica has is left: %+v, %v", rec, err)
	}
	shorter := olddriver.RenewRequest{Name: "name", Owner: readers[0].Owner, TTL: time.Second}
	if outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{shorter}); err == nil || outcomes[0] != olddriver.RenewUnknown {
		t.Errorf("a renewal that no replica has: %v, %v", outcomes, err)
	}
	// WAIT concerns what its connection has written, and here that is the renewal.
	anew := open(t, master.Addr, &Options{MinReplicas: 1})
	if outcomes, err := anew.Renew(t.Context(), []olddriver.RenewRequest{shorter}); err == nil || outcomes[0] != olddriver.RenewUnknown {
		t.Errorf("a renewal that changes nothing, and that no replica has: %v, %v", outcomes, err)
	}
	replica.Resume()
	eventually(t, "confirmed renewal", func() bool {
		outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{shorter})
		return err == nil && outcomes[0] == olddriver.Renewed
	})
}

// A user with the rights for exclusive holds alone finds holders that tolerate others in the way, and
// nothing else. Without one of the rights for these a request fails, and changes nothing.
func TestRightsForHolders(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	all := open(t, server.Addr, nil)
	user := func(name string, commands ...string) *engine {
		t.Helper()
		server.Do("ACL", "SETUSER", name, "on", ">SecretWord", "~lock:*", "-@all", "+eval", "+evalsha", "+hello", "+exists")
		server.Do(append([]string{"ACL", "SETUSER", name}, plus(commands)...)...)
		return openFromURL(t, "redis://"+name+":SecretWord@"+server.Addr)
	}
	limited := user("limited", rights...)
	own := grant(t, limited, "name", time.Minute)
	server.Do("DEL", "lock:name")
	reader := join(t, all, "name", time.Minute, olddriver.Shared)
	if res := refuses(t, limited, "name", 0); !isAbout(res.Held.Remaining, time.Minute) {
		t.Errorf("the hold in the way is %+v", res.Held)
	}
	if renew(t, limited, own) != olddriver.RenewLost || release(t, limited, own) {
		t.Error("a hold that was broken is renewed or released")
	}
	if rec, found, err := limited.Lookup(t.Context(), "name"); err != nil || !found || !isAbout(rec.Remaining, time.Minute) {
		t.Errorf("Lookup: %+v, %v, %v", rec, found, err)
	}
	release(t, all, reader)
	release(t, limited, grant(t, limited, "name", time.Minute))

	needed := []string{"get", "set", "del", "time", "zadd", "zrange", "zrem", "zcard", "hset", "hget", "hmget", "hdel", "hlen", "zscore", "pexpireat"}
	for _, missing := range needed {
		others := slices.DeleteFunc(slices.Clone(needed), func(command string) bool { return command == missing })
		s := user("without-"+missing, others...)
		for _, beside := range []bool{false, true} {
			server.Do("FLUSHALL")
			var second olddriver.AcquireRequest
			if beside {
				join(t, all, "name", time.Minute, 9)
				second = join(t, all, "name", time.Hour, 9)
			}
			state := func() string {
				rec, found, err := all.Lookup(t.Context(), "name")
				left := leftOf(t, server, "lock:name") > 90*time.Minute
				return fmt.Sprint(found, err, rec.Token, len(rec.Others), left)
			}
			before := state()
			if res, err := s.Acquire(t.Context(), sharing("name", 2*time.Hour, 9)); err != nil && (state() != before || !driver.IsNotApplied(err)) {
				t.Errorf("without %s, beside others %v: %v, and %s became %s", missing, beside, err, before, state())
			} else if err == nil && !res.Granted {
				t.Errorf("without %s, beside others %v: %+v", missing, beside, res)
			} else if err == nil {
				continue
			}
			if !beside {
				continue
			}
			refuses(t, all, "name", 2)
			if ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: second.Owner}); err != nil && state() != before {
				t.Errorf("without %s: Release: %v, %v, and %s became %s", missing, ended, err, before, state())
			}
		}
	}
}

// In a cluster the keys of the holders are in the slot of the lock. While the slot moves no holder is
// told that it has lost its hold, and none is granted that is too many.
func TestHoldersInACluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	s := newEngine(client, nil)
	t.Cleanup(func() { _ = s.Close(); _ = client.Close() })
	for i := range 20 {
		name := strconv.Itoa(i)
		req := join(t, s, name, time.Minute, 2)
		join(t, s, name, time.Minute, 2)
		refuses(t, s, name, 2)
		release(t, s, req)
		handed := queueOf(name)
		if res := acquire(t, s, handed); !res.Queued {
			t.Errorf("a writer: %+v, want a place", res)
		}
	}
	t.Run("holders first", func(t *testing.T) { moveHolders(t, cluster, client, "{x}", 1) })
	t.Run("holders last", func(t *testing.T) { moveHolders(t, cluster, client, "{y}", -1) })
}

// grantLater takes a lock that is free, as soon as it can be granted.
func grantLater(t *testing.T, s *engine, name string, ttl time.Duration) olddriver.AcquireRequest {
	t.Helper()
	req := request(name, ttl)
	eventually(t, fmt.Sprintf("grant of %q", name), func() bool {
		res, err := s.Acquire(t.Context(), req)
		return err == nil && res.Granted
	})
	return req
}

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

// moveHolders moves the slot of a tag key by key, with the keys of holders first, or last if order is
// -1.
func moveHolders(t *testing.T, cluster *servers.RedisCluster, client *redis.ClusterClient, tag string, order int) {
	s, name := newEngine(client, nil), tag+"name"
	defer s.Close()
	slot := int(slotOf(s.lockKey(name)))
	from, to := masterOf(t, cluster, client, s.lockKey(name))
	held, other := join(t, s, name, time.Minute, 2), join(t, s, name, time.Minute, 2)
	check := func(when string) {
		t.Helper()
		outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: held.Owner, TTL: time.Minute}})
		if (err != nil) != (outcomes[0] == olddriver.RenewUnknown) || err == nil && outcomes[0] != olddriver.Renewed {
			t.Errorf("%s: Renew: %v, %v", when, outcomes, err)
		}
		for _, limit := range []int{0, 2} {
			if res, err := s.Acquire(t.Context(), sharing(name, time.Minute, limit)); err == nil && res.Granted {
				t.Errorf("%s: Acquire with limit %d: %+v", when, limit, res)
			}
		}
		if res, err := s.Acquire(t.Context(), other); err == nil && !res.Granted {
			t.Errorf("%s: a repetition: %+v", when, res)
		}
		if _, found, err := s.Lookup(t.Context(), name); err == nil && !found {
			t.Errorf("%s: Lookup: the name is free", when)
		}
		stranger := olddriver.ReleaseRequest{Name: name, Owner: "stranger"}
		if ended, _ := s.Release(t.Context(), stranger); ended {
			t.Errorf("%s: a stranger has released a hold", when)
		}
	}
	// The slot has all keys that the scripts declare, so that they run until one of these has moved.
	ahead := request(tag+"ahead", time.Minute)
	ahead.Floor = time.Now().Add(time.Hour).UnixMicro()
	acquire(t, s, ahead)
	enqueue(t, s, ahead.Name)
	cluster.BeginMove(slot, from, to)
	check("nothing has moved")
	all := strings.Fields(from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100"))
	slices.SortFunc(all, func(a, b string) int {
		isOf := func(key string) int { return strings.Count(key, "holders") + 2*strings.Count(key, "ends") }
		return order * (isOf(b) - isOf(a))
	})
	for _, key := range all {
		host, port, _ := strings.Cut(to.Addr, ":")
		if reply := from.Do("MIGRATE", host, port, key, "0", "5000"); reply != "OK" {
			t.Errorf("MIGRATE of %q: %s", key, reply)
		}
		check(fmt.Sprintf("%q has moved", key))
	}
	ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: name, Owner: other.Owner})
	if err == nil && !ended {
		t.Error("a release during the move reports that there is no hold")
	}
	cluster.EndMove(slot, from, to)
	eventually(t, "renewal", func() bool {
		outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: held.Owner, TTL: time.Minute}})
		return err == nil && outcomes[0] == olddriver.Renewed
	})
	if !ended && !release(t, s, other) {
		t.Error("a hold is lost by the move")
	}
	join(t, s, name, time.Minute, 2)
	refuses(t, s, name, 2)
}
