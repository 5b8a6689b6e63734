//go:build unix

package redisstore

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func openFromURL(t *testing.T, text string) *Store {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openURL(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*Store)
}

var allVerbs = []string{"Acquire", "Renew", "Release", "Lookup", "Break", "List"}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--requirepass", "right")
	for _, user := range []string{"", "user:SecretPassword@", ":SecretPassword@"} {
		s := openFromURL(t, "redis://"+user+server.Addr)
		for verb, call := range calls(s, "name") {
			// The server may close the connection before it has been read why.
			eventually(t, "error of "+verb+" that says why", func() bool {
				err := call(t.Context())
				if err == nil || strings.Contains(err.Error(), "Secret") {
					t.Fatalf("%s: %v, want an error without the password", verb, err)
				}
				return driver.IsNotApplied(err) && strings.Contains(err.Error(), "password")
			})
		}
	}
	right := openFromURL(t, "redis://:right@"+server.Addr)
	grant(t, right, "name", time.Minute)
	if res := acquire(t, right, queueOf("name")); !res.First {
		t.Errorf("a place with the right password: %+v", res)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	server.Kill()
	fails(t, s, driver.ErrNotApplied, "refused", allVerbs...)
}

func TestReplica(t *testing.T) {
	t.Parallel()
	master, replica := servers.StartRedis(t), servers.StartRedis(t)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica.Do("REPLICAOF", host, port)
	eventually(t, "replica", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
	s := open(t, replica.Addr, nil)
	fails(t, s, driver.ErrNotApplied, "replica", "Acquire")
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "held", time.Minute)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	fails(t, s, driver.ErrNotApplied, "no memory left", "Acquire")
	if renew(t, s, held) != driver.Renewed || !release(t, s, held) {
		t.Error("without memory a hold can be neither renewed nor released")
	}
}

func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	for range 3 {
		server.Do("SCRIPT", "FLUSH")
		for verb, call := range calls(s, "name") {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s after SCRIPT FLUSH: %v", verb, err)
			}
		}
	}
}

// The owner is the first line of a lock's value, and is never taken for more of it.
func TestOwnerOfTwoLines(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	held := grant(t, s, "name", time.Minute)
	rec, _, _ := s.Lookup(t.Context(), "name")
	for _, owner := range []string{"", held.Owner + "\n" + strconv.FormatInt(rec.Token, 10)} {
		_, err := s.Acquire(t.Context(), driver.AcquireRequest{Name: "name", Owner: owner, TTL: time.Minute})
		_, err2 := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: owner})
		_, err3 := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: owner, TTL: time.Minute}})
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), held.Owner) {
				t.Errorf("an owner of %d bytes: %v", len(owner), err)
			}
		}
	}
	if !release(t, s, held) {
		t.Error("the hold is gone")
	}
}

// Without the right to read locks the error names that right, and not corrupt locks.
func TestReadingForbidden(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	server.Do("ACL", "SETUSER", "limited", "on", ">SecretWord", "~*", "+@all", "-getrange")
	const says = "must be allowed"
	s := openFromURL(t, "redis://limited:SecretWord@"+server.Addr)
	grant(t, s, "name", time.Minute)
	fails(t, s, driver.ErrNotApplied, says, "Renew", "Release")
	server.Do("ACL", "SETUSER", "limited", "+getrange", "-get")
	fails(t, s, driver.ErrNotApplied, says, "Acquire", "Lookup", "Break")
}

func TestNodeOfACluster(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--cluster-enabled", "yes")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, "cluster of one node", func() bool { return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok") })
	s := open(t, server.Addr, nil)
	fails(t, s, driver.ErrNotApplied, "use a cluster client", "Acquire")
}

// The server hangs: calls end with their contexts, and work when it goes on.
func TestHungServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr}) // Not ContextTimeoutEnabled, as most are.
	defer client.Close()
	s := New(client, nil)
	defer s.Close()
	held := grant(t, s, "held", time.Hour)
	server.Pause()
	for verb, call := range calls(s, "name") {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); err == nil {
			t.Errorf("%s of a server that hangs: no error", verb)
		}
		cancel()
	}
	server.Resume()
	eventually(t, "answer", func() bool {
		outcomes, _ := s.Renew(t.Context(), []driver.RenewRequest{{Name: "held", Owner: held.Owner, TTL: time.Hour}})
		return len(outcomes) == 1 && outcomes[0] == driver.Renewed
	})
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for what, c := range map[string]struct {
		s    *Store
		want error
	}{
		"no client":          {New(nil, nil), driver.ErrInvalid},
		"nil client":         {New((*redis.Client)(nil), nil), driver.ErrInvalid},
		"a Ring":             {New(ring, nil), driver.ErrUnsupported},
		"a control sign":     {New(client, &Options{Prefix: "a\x1f"}), driver.ErrInvalid},
		"a guard of no time": {New(client, &Options{RestartGuard: -1}), driver.ErrInvalid},
		"a guarded cluster":  {New(cluster, &Options{RestartGuard: time.Second}), driver.ErrUnsupported},
		"negative replicas":  {New(client, &Options{MinReplicas: -1}), driver.ErrInvalid},
		"a long wait":        {New(client, &Options{ReplicaTimeout: time.Minute}), driver.ErrInvalid},
	} {
		if _, err := c.s.Acquire(t.Context(), request("name", time.Minute)); !errors.Is(err, c.want) {
			t.Errorf("with %s: %v, want %v", what, err, c.want)
		}
		if err := c.s.Close(); err != nil {
			t.Errorf("Close with %s: %v", what, err)
		}
	}
}
