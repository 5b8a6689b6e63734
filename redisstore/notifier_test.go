//go:build unix

package redisstore

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// openMovable returns a store whose new connections go to the address that the function sets. It
// has one connection besides that for notices.
func openMovable(t *testing.T, addr string) (s *engine, dialTo func(addr string)) {
	t.Helper()
	var to atomic.Value
	to.Store(addr)
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 1, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.Load().(string))
	}})
	s = newEngine(client, nil)
	t.Cleanup(func() { _ = s.Close(); _ = client.Close() })
	return s, func(addr string) { to.Store(addr) }
}

// expectAsk waits for the notice that something may have been missed.
func expectAsk(t *testing.T, notices <-chan olddriver.Notice) {
	t.Helper()
	select {
	case n := <-notices:
		if n != (olddriver.Notice{Kind: olddriver.Ask}) {
			t.Fatalf("the notice %+v, want Ask for all", n)
		}
	case <-time.After(bound):
		t.Fatalf("no Ask after %v", bound)
	}
}

func subscribers(server *servers.Redis) int {
	return strings.Count(server.Do("CLIENT", "LIST", "TYPE", "pubsub"), "cmd=")
}

// After a connection for notices was cut, or has died silently, there is another one, and waiters
// are asked to claim, since a notice may have been lost.
func TestConnectionForNoticesLost(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for what, harm := range map[string]func(*faultproxy.Proxy){
		"cut":    (*faultproxy.Proxy).Reset,
		"silent": func(p *faultproxy.Proxy) { p.Hold(faultproxy.Down); p.Hold(faultproxy.Up) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			holder := open(t, server.Addr, nil)
			s, dialTo := openMovable(t, server.Addr)
			release(t, s, grant(t, s, what, time.Minute)) // The connection for requests is there.
			proxy := faultproxy.Start(t, server.Addr)
			dialTo(proxy.Addr())
			held := grant(t, holder, what, time.Minute)
			waiter := enqueue(t, s, what)
			notices := noticesOf(t, s)
			dialTo(server.Addr)
			harm(proxy)
			expectAsk(t, notices)
			release(t, holder, held)
			expect(t, notices, olddriver.Granted, waiter)
		})
	}
}

// While a server is away a store tries to connect at pauses that grow, and the waiters of a server
// that was started anew, empty, learn that they have lost their places.
func TestServerAwayFromWaiters(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	grant(t, s, "name", time.Minute)
	waiter := enqueue(t, s, "name")
	notices := noticesOf(t, s)
	server.Kill()
	eventually(t, "many attempts", func() bool {
		s.notifier.mu.Lock()
		defer s.notifier.mu.Unlock()
		return s.notifier.failures >= 4
	})
	s.notifier.mu.Lock()
	began, before := time.Now(), s.notifier.failures
	s.notifier.mu.Unlock()
	<-time.After(2 * time.Second)
	s.notifier.mu.Lock()
	if most := before + 1 + int(time.Since(began)/(minReconnect<<3)); s.notifier.failures > most {
		t.Errorf("%d attempts in %v, want %d at most", s.notifier.failures-before, time.Since(began), most-before)
	}
	s.notifier.mu.Unlock()
	server.Start()
	expectAsk(t, notices)
	if res := claim(t, s, waiter); res.Granted || res.Queued {
		t.Errorf("a claim of a place that is gone: %+v", res)
	}
	if outcome := renew(t, s, waiter); outcome != olddriver.RenewLost {
		t.Errorf("Renew of a place that is gone: %v", outcome)
	}
}

// Without the right to subscribe, or to make or admit a place, a request gets no place and no error.
// Without the right to publish, a release admits the next without a notice.
func TestRightsForQueues(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	all := open(t, server.Addr, nil)
	for user, lacks := range map[string]string{
		"nochannel": "resetchannels", "nosubscribe": "-subscribe", "nozset": "-zadd", "nohash": "-hset", "noread": "-hget",
		"noremoval": "-zrem", "noexists": "-exists",
	} {
		server.Do("ACL", "SETUSER", user, "on", ">word", "~*", "&*", "+@all", lacks)
		s := openFromURL(t, "redis://"+user+":word@"+server.Addr)
		held := grant(t, all, user, time.Minute)
		if res := acquire(t, s, queueOf(user)); res.Granted || res.Queued || res.Held.Token == 0 {
			t.Errorf("%s: %+v, want it refused", user, res)
		}
		if n := server.Do("ZCARD", "lock:\x1fqueue\x1flock:"+user); n != "0" {
			t.Errorf("%s has left a queue of %s", user, n)
		}
		release(t, all, held)
		own := grant(t, s, user, time.Minute)
		waiter := enqueue(t, all, user)
		notices := noticesOf(t, all)
		if !release(t, s, own) {
			t.Errorf("%s cannot release a lock that has a queue", user)
		}
		if user != "nosubscribe" && user != "nozset" && user != "nohash" { // The user can admit nobody, or notify nobody.
			if outcome := renew(t, all, waiter); outcome != olddriver.Renewed {
				t.Errorf("%s: the renewal of the place is answered %v", user, outcome)
			}
		} else {
			expect(t, notices, olddriver.Granted, waiter)
		}
		release(t, all, waiter)
	}
	server.Do("ACL", "SETUSER", "mute", "on", ">word", "~*", "&*", "+@all", "-publish")
	mute := openFromURL(t, "redis://mute:word@"+server.Addr)
	held := grant(t, mute, "mute", time.Minute)
	waiter := enqueue(t, all, "mute")
	notices := noticesOf(t, all)
	if !release(t, mute, held) {
		t.Error("without the right to publish a hold cannot be released")
	}
	if outcome := renew(t, all, waiter); outcome != olddriver.Renewed {
		t.Errorf("the renewal of a place admitted without a notice is answered %v", outcome)
	}
	silent(t, notices)
	if res := claim(t, all, waiter); !res.Granted {
		t.Errorf("a claim: %+v", res)
	}
	// What a user without the right to delete it leaves of a place is none.
	server.Do("ACL", "SETUSER", "leaver", "on", ">word", "~*", "&*", "+@all", "-hdel")
	leaver := openFromURL(t, "redis://leaver:word@"+server.Addr)
	held = grant(t, leaver, "leaver", time.Minute)
	waiter = enqueue(t, leaver, "leaver")
	if !release(t, leaver, waiter) {
		t.Error("without the right to delete a place cannot be given up")
	}
	waiter = enqueue(t, all, "leaver")
	notices = noticesOf(t, all)
	release(t, leaver, held)
	expect(t, notices, olddriver.Granted, waiter)
	if outcome := renew(t, all, waiter); outcome != olddriver.Renewed {
		t.Errorf("Renew of what was a place: %v", outcome)
	}
}

// A waiter whose client has ended is passed over at once, and ten of them are. One that lives and
// is not reached loses its turn, and not its place.
func TestDeadWaiters(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	holder, next := open(t, server.Addr, nil), open(t, server.Addr, nil)
	held := grant(t, holder, "name", time.Minute)
	var dead []olddriver.AcquireRequest
	for range 10 {
		s := open(t, server.Addr, nil)
		dead = append(dead, enqueue(t, s, "name"))
		_ = s.Close()
	}
	eventually(t, "end of the connections", func() bool { return subscribers(server) == 0 })
	waiter := enqueue(t, next, "name")
	notices := noticesOf(t, next)
	release(t, holder, held)
	expect(t, notices, olddriver.Granted, waiter)
	release(t, next, waiter)
	if outcome := renew(t, holder, dead[3]); outcome != olddriver.Renewed {
		t.Errorf("the renewal of a place that was passed over, of a free name: %v", outcome)
	}
	if res := acquire(t, next, request("name", time.Minute)); res.Granted {
		t.Error("a newcomer has overtaken")
	}
}

// A waiter that lives and whose connection for notices fails for long keeps its turn from its next
// renewal on, though others are notified.
func TestWaiterWithoutNotices(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	holder, next := open(t, server.Addr, nil), open(t, server.Addr, nil)
	server.Do("ACL", "SETUSER", "user", "on", ">word", "~*", "&*", "+@all")
	s := openFromURL(t, "redis://user:word@"+server.Addr)
	for what, request := range map[string]func(olddriver.AcquireRequest) bool{
		"renewal": func(req olddriver.AcquireRequest) bool {
			req.TTL = place / 2 // It does not move the end of the place.
			return renew(t, s, req) == olddriver.RenewQueued
		},
		"claim": func(req olddriver.AcquireRequest) bool { return claim(t, s, req).First },
	} {
		server.Do("ACL", "SETUSER", "user", "allchannels")
		held := grant(t, holder, what, time.Minute)
		var waiter olddriver.AcquireRequest
		eventually(t, "place", func() bool {
			waiter = queueOf(what)
			res := acquire(t, s, waiter)
			return res.Queued
		})
		eventually(t, "connections", func() bool { return subscribers(server) > 0 })
		second := enqueue(t, next, what)
		notices := noticesOf(t, next)
		server.Do("ACL", "SETUSER", "user", "resetchannels")
		eventually(t, "end of the connection", func() bool { return subscribers(server) == 1 })
		if !request(waiter) {
			t.Errorf("%s: the place is gone", what)
		}
		release(t, holder, held)
		if outcome := renew(t, s, waiter); outcome != olddriver.Renewed {
			t.Errorf("%s: Renew of a place whose turn it is: %v", what, outcome)
		}
		silent(t, notices)
		release(t, holder, waiter)
		expect(t, notices, olddriver.Granted, second)
		release(t, next, second)
	}
}

// What a request costs the server does not depend on how many wait.
func TestLongQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Minute)
	const waiters = 300
	for range waiters {
		enqueue(t, s, "name")
	}
	before := numberOf(t, server, "hvals")
	for i, ask := range []func() int{
		func() int { return acquire(t, s, request("name", time.Minute)).Held.Waiting },
		func() int { rec, _, _ := s.Lookup(t.Context(), "name"); return rec.Waiting },
	} {
		if n := ask(); n != waiters {
			t.Errorf("request %d: %d waiters, want %d", i, n, waiters)
		}
	}
	if n := numberOf(t, server, "hvals") - before; n != 0 {
		t.Errorf("all places are read %d times", n)
	}
	release(t, s, held)
}

// A notice may come before the reply to the request that made the place.
func TestNoticeBeforeTheReply(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	s, dialTo := openMovable(t, proxy.Addr())
	release(t, s, grant(t, s, "name", time.Minute)) // The connection for requests is there, through the proxy.
	dialTo(server.Addr)
	holder := open(t, server.Addr, nil)
	grant(t, holder, "other", time.Minute)
	enqueue(t, s, "other") // So is that for notices.
	held := grant(t, holder, "name", time.Minute)
	notices := noticesOf(t, s)
	proxy.Hold(faultproxy.Down)
	waiter := queueOf("name")
	results := make(chan olddriver.AcquireResult, 1)
	go func() {
		res, err := s.Acquire(t.Context(), waiter)
		if err != nil {
			t.Error(err)
		}
		results <- res
	}()
	eventually(t, "place", func() bool { return server.Do("ZCARD", "lock:\x1fqueue\x1flock:name") == "1" })
	release(t, holder, held)
	granted := expect(t, notices, olddriver.Granted, waiter)
	select {
	case res := <-results:
		t.Fatalf("the reply %+v has overtaken the notice", res)
	default:
	}
	proxy.Pass(faultproxy.Down)
	if res := <-results; !res.Queued {
		t.Errorf("the reply is %+v, want a place", res)
	}
	if res := claim(t, s, waiter); !res.Granted || res.Token != granted.Token {
		t.Errorf("a claim: %+v, want token %d", res, granted.Token)
	}
}

// A client whose notices come from a replica is not counted by the master. It gets no notice of a
// hold that it does not have.
func TestSubscriberAtAReplica(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	holder, next := open(t, master.Addr, nil), open(t, master.Addr, nil)
	s, dialTo := openMovable(t, master.Addr)
	held := grant(t, holder, "name", time.Minute)
	first := enqueue(t, s, "name")
	second := enqueue(t, next, "name")
	notices, nextNotices := noticesOf(t, s), noticesOf(t, next)
	dialTo(replica.Addr)
	s.notifier.mu.Lock()
	for _, conn := range s.notifier.conns {
		_ = conn.pubsub.Close()
	}
	s.notifier.mu.Unlock()
	expectAsk(t, notices)
	if subscribers(replica) != 1 {
		t.Fatal("the notices do not come from the replica")
	}
	release(t, holder, held)
	expect(t, nextNotices, olddriver.Granted, second)
	master.Do("PUBLISH", s.notifier.channelName(""), "0\n0\nend\nlock:name")
	if n := <-notices; n.Owner != "end" {
		t.Errorf("a client that was passed over is sent %+v", n)
	}
	if res := claim(t, s, first); res.Granted || !res.First {
		t.Errorf("a claim of a place that was passed over: %+v", res)
	}
	release(t, next, second)
	if outcome := renew(t, s, first); outcome != olddriver.Renewed {
		t.Errorf("Renew of a place whose turn it is: %v", outcome)
	}
}

// Where a server refuses to write, a release that it refuses notifies nobody, and one that works
// without a queue works with one.
func TestReleaseWhereWritesAreRefused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		harm, mend []string
		releases   bool
	}{
		"demoted":     {[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}, false},
		"no replicas": {[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}, false},
		"full":        {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			holder, s := open(t, server.Addr, nil), open(t, server.Addr, nil)
			held := grant(t, holder, "name", time.Minute)
			waiter := enqueue(t, s, "name")
			notices := noticesOf(t, s)
			server.Do(c.harm...)
			ended, err := holder.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: held.Owner})
			if c.releases != (err == nil && ended) {
				t.Errorf("Release: %v, %v", ended, err)
			}
			if err != nil && !driver.IsNotApplied(err) {
				t.Errorf("Release leaves it open whether it had an effect: %v", err)
			}
			if owner, _, _ := strings.Cut(server.Do("GET", "lock:name"), "\n"); c.releases == strings.HasPrefix(owner, held.Owner) {
				t.Errorf("the lock has the owner %q", owner)
			}
			server.Do(c.mend...)
			if c.releases {
				silent(t, notices)
				if outcome := renew(t, s, waiter); outcome != olddriver.Renewed {
					t.Errorf("Renew of the place: %v", outcome)
				}
				return
			}
			if outcome := renew(t, s, waiter); outcome != olddriver.RenewQueued {
				t.Errorf("Renew of the place: %v", outcome)
			}
			silent(t, notices)
			if !release(t, holder, held) {
				t.Error("the hold is gone")
			}
			expect(t, notices, olddriver.Granted, waiter)
		})
	}
}

// A server that may have forgotten locks admits nobody, and does so later by the renewal of a
// place.
func TestGuardAndQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	opts := &Options{RestartGuard: time.Second}
	s := open(t, server.Addr, opts)
	grantLater(t, s, "other", time.Minute)
	held := grant(t, s, "name", time.Minute)
	waiter := enqueue(t, s, "name")
	notices := noticesOf(t, s)
	server.Do("DEL", s.guardKey()) // as after a loss of data
	release(t, s, held)
	if server.Do("EXISTS", "lock:name") != "0" {
		t.Fatalf("a server that abstains has admitted %q", server.Do("GET", "lock:name"))
	}
	silent(t, notices)
	eventually(t, "admission", func() bool { return renew(t, s, waiter) == olddriver.Renewed })
}

// With MinReplicas a waiter is asked to claim, and its claim is confirmed by the replicas.
func TestReplicasAndQueue(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t, "--repl-diskless-sync-delay", "0"), servers.StartRedis(t)
	follow(t, replica, master)
	s := open(t, master.Addr, &Options{MinReplicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	held := grantLater(t, s, "name", time.Minute)
	waiter := enqueue(t, s, "name")
	notices := noticesOf(t, s)
	release(t, s, held)
	expect(t, notices, olddriver.Ask, waiter)
	replica.Pause()
	waiter.Claim = true
	if res, err := s.Acquire(t.Context(), waiter); err == nil || driver.IsNotApplied(err) || !strings.Contains(err.Error(), "0 replicas have confirmed") {
		t.Errorf("a claim that no replica has confirmed: %+v, %v", res, err)
	}
	replica.Resume()
	eventually(t, "confirmed claim", func() bool {
		res, err := s.Acquire(t.Context(), waiter)
		return err == nil && res.Granted
	})
}

// While a slot of a cluster moves, neither a hold nor a place is reported lost, and a place is not
// granted twice.
func TestQueueOnAMovingSlot(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true})
	s := newEngine(client, nil)
	t.Cleanup(func() { _ = s.Close(); _ = client.Close() })
	const name = "{x}name"
	slot := int(slotOf(s.lockKey(name)))
	from, to := masterOf(t, cluster, client, s.lockKey(name))
	held := grant(t, s, name, time.Minute)
	waiter := enqueue(t, s, name)
	cluster.BeginMove(slot, from, to)
	if outcomes, _ := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: held.Owner, TTL: time.Minute}}); outcomes[0] == olddriver.RenewLost {
		t.Errorf("Renew of a hold: %v", outcomes)
	}
	refresh := func() olddriver.RenewOutcome {
		outcomes, err := s.Renew(t.Context(), []olddriver.RenewRequest{{Name: name, Owner: waiter.Owner, TTL: place}})
		if (err != nil) != (outcomes[0] == olddriver.RenewUnknown) {
			t.Errorf("Renew of a place: %v, %v", outcomes, err)
		}
		return outcomes[0]
	}
	if outcome := refresh(); outcome == olddriver.RenewLost || outcome == olddriver.Renewed {
		t.Errorf("Renew of a place: %v", outcome)
	}
	waiter.Claim = true
	if res, err := s.Acquire(t.Context(), waiter); err == nil && !res.Queued {
		t.Errorf("a claim of a place: %+v, want it queued or an error", res)
	}
	cluster.MoveKeys(slot, from, to)
	cluster.EndMove(slot, from, to)
	eventually(t, "release", func() bool {
		ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: name, Owner: held.Owner})
		return err == nil && ended
	})
	eventually(t, "admission", func() bool { return refresh() == olddriver.Renewed })
	if res := claim(t, s, waiter); !res.Granted {
		t.Errorf("a claim: %+v", res)
	}
	eventually(t, "subscription at the other node", func() bool { return subscribers(to) == 1 })
	other := enqueue(t, s, name)
	notices := noticesOf(t, s)
	release(t, s, waiter)
	for { // An Ask may be on its way.
		select {
		case n := <-notices:
			if n.Kind == olddriver.Granted && n.Owner == other.Owner {
				return
			}
		case <-time.After(bound):
			t.Fatal("no notice from the other node")
		}
	}
}

// The keys beside a lock that has a queue outlast each place, and not by much more than a minute;
// and the mark of a queue that is over costs one renewal.
func TestKeysOfAQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Hour)
	waiter := enqueue(t, s, "name")
	rec, _, _ := s.Lookup(t.Context(), "name")
	if rec.Waiting != 1 {
		t.Errorf("%d waiters in the record, want 1", rec.Waiting)
	}
	for rec, err := range s.List(t.Context(), "") {
		if err != nil || rec.Name != "name" || rec.Waiting != 1 {
			t.Errorf("the list has %+v, %v", rec, err)
		}
	}
	for _, key := range []string{"queue\x1flock:name", "places\x1flock:name", "queues"} {
		left, _ := strconv.Atoi(server.Do("PTTL", "lock:\x1f"+key))
		if time.Duration(left)*time.Millisecond < place-time.Second || left > int((place+time.Minute).Milliseconds()) {
			t.Errorf("the key %q lasts for %d ms", key, left)
		}
	}
	release(t, s, waiter)
	value := server.Do("GET", "lock:name")
	if !strings.HasPrefix(value, held.Owner+"\x1f\n") {
		t.Errorf("a lock with a queue has the value %q, want it marked", value)
	}
	if got := strings.Join(keys(server), " "); got != "lock:\x1fcounter lock:\x1fqueues lock:name" {
		t.Errorf("after the last place the keys are %q", got)
	}
	if renew(t, s, held) != olddriver.Renewed || server.Do("GET", "lock:name") == value {
		t.Error("the mark is still there after a renewal")
	}
}

// A lock that another kind of client has, or has freed, goes to the first in line by its claim, and
// nobody overtakes.
func TestPlaceBehindAStranger(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for what, c := range map[string]struct{ take, free []string }{
		"DEL":        {[]string{"SET", "lock:name", "x"}, []string{"DEL", "lock:name"}},
		"UNLINK":     {[]string{"SET", "lock:name", "x"}, []string{"UNLINK", "lock:name"}},
		"RENAME":     {[]string{"SET", "lock:name", "x"}, []string{"RENAME", "lock:name", "elsewhere"}},
		"expiry":     {[]string{"SET", "lock:name", "x"}, []string{"PEXPIREAT", "lock:name", "1"}},
		"a script":   {[]string{"SET", "lock:name", "x"}, []string{"EVAL", "return redis.call('DEL', KEYS[1])", "1", "lock:name"}},
		"sorted set": {[]string{"ZADD", "lock:name", "1", "x"}, []string{"DEL", "lock:name"}},
		"hash":       {[]string{"HSET", "lock:name", "x", "1"}, []string{"DEL", "lock:name"}},
		"empty":      {[]string{"SET", "lock:name", ""}, []string{"DEL", "lock:name"}},
	} {
		server.Do(c.take...)
		waiter := enqueue(t, s, "name")
		if outcome := renew(t, s, waiter); outcome != olddriver.RenewQueued {
			t.Errorf("%s: Renew of a place: %v", what, outcome)
		}
		second := enqueue(t, s, "name")
		notices := noticesOf(t, s)
		release(t, s, waiter)
		expect(t, notices, olddriver.Ask, second) // It is the first now, and has to try at intervals.
		waiter = second
		if stranger := request("name", time.Minute); release(t, s, stranger) || renew(t, s, stranger) != olddriver.RenewLost {
			t.Errorf("%s: somebody has released or renewed the lock of another", what)
		}
		if res := claim(t, s, waiter); res.Granted || !res.First {
			t.Errorf("%s: a claim while it is held: %+v", what, res)
		}
		server.Do(c.free...)
		if res := acquire(t, s, request("name", time.Minute)); res.Granted {
			t.Errorf("%s: a newcomer has overtaken", what)
		}
		expect(t, notices, olddriver.Granted, waiter)
		if res := claim(t, s, waiter); !res.Granted {
			t.Errorf("%s: a claim when it is free: %+v", what, res)
		}
		release(t, s, waiter)
	}
}
