//go:build unix

package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// rights are the commands that the package comment asks for, without those of options and of the
// connection.
var rights = strings.Fields(`+exists +get +set +del +pttl +pexpire +time +incrby +zadd +zcount +zscore +zrange
	+zrangebyscore +zrem +zremrangebyscore +hset +hget +hdel +publish +type`)

// everything returns what the keys of a name are.
func everything(server *servers.Redis) string {
	var all []string
	for _, key := range keys(server) {
		if strings.Contains(key, "counter") {
			continue // A token that was made and not used is no change.
		}
		read := map[string][]string{"string": {"GET", key}, "hash": {"HGETALL", key}, "zset": {"ZRANGE", key, "0", "-1"}}
		text := key + " " + server.Do(read[strings.TrimPrefix(server.Do("TYPE", key), "+")]...)
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Of calls that are sent together, one that fails for want of a right leaves the others granted.
func TestRightOnSomeLocks(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	server.Do("ACL", "SETUSER", "some", "on", ">pw", "~lock:*", "&lock:*", "+@all", "-set", "(+set ~lock:\x1f* ~lock:a ~lock:c)")
	s := openFromURL(t, "redis://some:pw@"+server.Addr)
	var together []*call
	for _, name := range []string{"a", "b", "c"} {
		req := request(name, time.Minute)
		together = append(together, s.acquireCall(&req))
	}
	sendTogether(s, together...)
	for i, c := range together {
		reply, err := s.readReply(c)
		if token, _ := reply.(int64); token > 0 != (i != 1) || driver.IsNotApplied(err) != (i == 1) {
			t.Errorf("call %d is answered %v, %v", i, reply, err)
		}
	}
}

// Whatever right a user lacks: an error that says that nothing was changed is true, and says what
// the user lacks.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	all := open(t, server.Addr, nil)
	for _, missing := range append([]string{"+nothing"}, rights...) {
		missing = missing[1:]
		server.Do("ACL", "SETUSER", missing, "on", ">SecretWord", "~lock:*", "&lock:*", "-@all", "+eval", "+evalsha", "+hello", "+ping")
		server.Do(append([]string{"ACL", "SETUSER", missing}, rights...)...)
		if missing != "nothing" {
			server.Do("ACL", "SETUSER", missing, "-"+missing)
		}
		s := openFromURL(t, "redis://"+missing+":SecretWord@"+server.Addr)
		for _, limit := range []int{1, 3} {
			for _, held := range []bool{false, true} {
				for _, verb := range allVerbs[:5] {
					server.Do("FLUSHALL")
					req := request("name", time.Minute)
					req.Limit, req.Place = limit, time.Minute
					if held || verb != "Acquire" {
						if _, err := all.Acquire(t.Context(), req); err != nil {
							t.Fatal(err)
						}
						other := request("name", time.Minute)
						other.Limit, other.Place = 1, time.Minute
						if _, err := all.Acquire(t.Context(), other); err != nil {
							t.Fatal(err)
						}
					}
					before := everything(server)
					if verb == "Acquire" {
						req.Owner = request("name", 0).Owner
					}
					req.TTL = time.Hour
					err := storecheck.Calls(s, req)[verb](t.Context())
					if err == nil {
						continue
					}
					if missing == "nothing" {
						t.Errorf("with all rights, %s: %v", verb, err)
					}
					if driver.IsNotApplied(err) && everything(server) != before {
						t.Errorf("without %s, %s with limit %d: %v: it was\n%s\nand is\n%s", missing, verb, limit, err, before, everything(server))
					}
					if !strings.Contains(err.Error(), "must be allowed") || strings.Contains(err.Error(), "Secret") {
						t.Errorf("without %s, %s: the error does not say that a right is missing, or says a secret: %v", missing, verb, err)
					}
				}
			}
		}
	}
}

// After a DEL of the lock by hand its holds are over, however many they are, and one that comes
// later excludes others as ever. After an eviction of the keys beside it the lock stays taken, and
// a place is lost.
func TestLockIsTheTruth(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	join := func() driver.Request {
		req, _ := share(t, s, "name", driver.Shared, time.Minute)
		return req
	}
	first, last := join(), join()
	for range 1500 {
		last = join()
	}
	server.Do("DEL", "lock:name")
	live := join()
	for _, req := range []driver.Request{last, first} {
		if release(t, s, req) || renew(t, s, req) != driver.Lost {
			t.Error("a holder of a lock that was deleted renews or releases")
		}
	}
	if res, err := s.Acquire(t.Context(), request("name", time.Minute)); err != nil || res.Granted {
		t.Errorf("an exclusive request beside a reader: %+v, %v", res, err)
	}
	if state := renew(t, s, live); state != driver.Held {
		t.Errorf("Renew of the reader: %v", state)
	}
	release(t, s, live)
	for _, key := range []string{queueInfix, entriesInfix} {
		req := join()
		join()
		server.Do("DEL", "lock:"+key+"lock:name")
		if renew(t, s, req) != driver.Lost {
			t.Errorf("without %q a hold is renewed", key)
		}
		release(t, s, join()) // Others come and go.
		if res, err := s.Acquire(t.Context(), request("name", time.Minute)); err != nil || res.Granted {
			t.Errorf("without %q an exclusive hold beside others: %+v, %v", key, res, err)
		}
		if server.Do("SET", "lock:name", "x", "NX") == "OK" {
			t.Errorf("without %q a foreign client has the lock", key)
		}
		server.Do("DEL", "lock:name")
		release(t, s, grant(t, s, "name", time.Minute))
	}
	hold, place := grant(t, s, "name", time.Minute), wait(t, s, "name", time.Minute)
	server.Do("DEL", "lock:"+queueInfix+"lock:name")
	release(t, s, hold)
	if state := renew(t, s, place); state == driver.Waiting {
		t.Error("a place that is in no queue, of a free name, waits")
	}
}

// A full server renews, also for the client that has adopted a hold, releases, and admits the next
// by its renewal. What it refuses is waited for.
func TestFullServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Minute)
	next, second := wait(t, s, "name", time.Minute), wait(t, s, "name", time.Minute)
	reader, _ := share(t, s, "shared", driver.Shared, time.Minute)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if state := renew(t, open(t, server.Addr, nil), held); state != driver.Held {
		t.Errorf("a hold that was adopted is %v", state)
	}
	if left, err := strconv.Atoi(server.Do("PTTL", "lock:name")); err != nil || left <= 0 || left > 60_000 {
		t.Errorf("it ends in %d ms, %v", left, err)
	}
	wantAll := func(want map[*driver.Request]driver.State) {
		t.Helper()
		for req, state := range want {
			if got := renew(t, s, *req); got != state {
				t.Errorf("the entry with a limit of %d, a place for %v: %v, want %v", req.Limit, req.Place, got, state)
			}
		}
	}
	wantAll(map[*driver.Request]driver.State{&held: driver.Held, &reader: driver.Held, &next: driver.Waiting, &second: driver.Waiting})
	if !release(t, s, held) {
		t.Error("a full server has not released")
	}
	wantAll(map[*driver.Request]driver.State{&next: driver.Held, &second: driver.Waiting})
	if _, err := s.Acquire(t.Context(), request("other", time.Minute)); !driver.IsNotApplied(err) || !errors.As(err, new(*driver.RetryError)) {
		t.Errorf("Acquire: %v, want that it can be tried again", err)
	}
}

// Five hundred readers behind a writer are admitted, some in one script, and the others by their
// renewals.
func TestCrowdOfReaders(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	looks := make(chan string, 1000)
	connected := make(chan bool, 1)
	defer s.Notify(func(name, owner string, token int64) {
		if name == "" {
			connected <- true
		} else if token == 0 {
			looks <- owner
		}
	})()
	writer := grant(t, s, "name", time.Minute)
	<-connected
	var renewals []driver.RenewRequest
	for range 500 {
		req := request("name", time.Minute)
		req.Limit, req.Place = driver.Shared, time.Minute
		if res, err := s.Acquire(t.Context(), req); err != nil || !res.Waiting {
			t.Fatal(res, err)
		}
		renewals = append(renewals, driver.RenewRequest{Name: "name", Owner: req.Owner, TTL: time.Minute})
	}
	release(t, s, writer)
	if owner := <-looks; owner != renewals[200].Owner {
		t.Errorf("%s is to look, want the next in line, %s", owner, renewals[200].Owner)
	}
	entries, err := s.Renew(t.Context(), renewals)
	for i, e := range entries {
		if err != nil || e.State != driver.Held {
			t.Fatalf("reader %d is %v, %v", i, e.State, err)
		}
	}
}

// A connection for notices that is cut or silent is replaced, and waiters look then.
func TestConnectionForNoticesLost(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	var dialed atomic.Int32
	s := over(t, redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}), nil)
	looks := make(chan bool, 100)
	defer s.Notify(func(name, _ string, _ int64) {
		if name == "" {
			looks <- true
		}
	})()
	grant(t, s, "name", time.Minute)
	<-looks
	proxy.Reset()
	<-looks
	proxy.Hold(faultproxy.Down)
	before := dialed.Load()
	eventually(t, "other connection", func() bool { return dialed.Load() > before })
	proxy.Pass(faultproxy.Down)
	<-looks
}
