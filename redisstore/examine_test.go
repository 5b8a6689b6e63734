//go:build unix

package redisstore

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// examined returns the checks with what was found, and the findings.
func examined(t *testing.T, s *Store, o *holdfast.ExamineOptions) (string, string) {
	t.Helper()
	findings, err := holdfast.Examine(t.Context(), s, o)
	if err != nil {
		t.Error(err)
	}
	var checks, texts []string
	for _, f := range findings {
		checks = append(checks, strings.TrimPrefix(f.Check, "redis.")+" "+f.Severity.String())
		texts = append(texts, f.String())
		if (f.Want == "") != (f.Severity == driver.SeverityOK) && f.Check != "notices" {
			t.Errorf("%+v: only what is not well has something to want", f)
		}
	}
	return strings.Join(checks, ", "), strings.Join(texts, "\n")
}

const (
	probed = ", latency ok, probe ok, clock ok, notices ok"
	wellOf = "role ok, eviction ok, persistence ok, failover ok" + probed
)

// Each check has a server that is ill in just that way.
func TestExamine(t *testing.T) {
	t.Parallel()
	safe := []string{"--appendonly", "yes", "--appendfsync", "always"}
	with := func(more ...string) []string { return append(slices.Clone(safe), more...) }
	for what, c := range map[string]struct {
		args       []string
		opts       Options
		user       []string // the rights of the user; nil for all
		want, says string
	}{
		"well":                  {args: with("--maxmemory", "100mb", "--maxmemory-policy", "noeviction"), want: wellOf, says: "noeviction"},
		"no limit of memory":    {args: with("--maxmemory-policy", "allkeys-lru"), want: wellOf, says: "not limited"},
		"evicts":                {args: with("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"), want: strings.Replace(wellOf, "eviction ok", "eviction fail", 1), says: "CONFIG SET maxmemory-policy noeviction"},
		"keeps nothing":         {want: strings.Replace(wellOf, "persistence ok", "persistence warn", 1), says: "CONFIG SET appendonly yes"},
		"keeps it each second":  {args: []string{"--appendonly", "yes"}, want: strings.Replace(wellOf, "persistence ok", "persistence note", 1), says: "appendfsync everysec"},
		"leaves it to the host": {args: []string{"--appendonly", "yes", "--appendfsync", "no"}, want: strings.Replace(wellOf, "persistence ok", "persistence warn", 1), says: "appendfsync no"},
		"short guard":           {opts: Options{RestartGuard: 50 * time.Millisecond}, want: strings.Replace(wellOf, "persistence ok", "persistence warn", 1), says: "try restart_guard=30s"},
		"too few replicas": {args: safe, opts: Options{MinReplicas: 1},
			want: "role ok, eviction ok, persistence ok, failover fail, latency ok, probe warn", says: "before it has 1"},
		"no INFO": {args: safe, user: []string{"~*", "&*", "+@all", "-info"},
			want: "role unknown, eviction unknown, persistence unknown, failover unknown" + probed, says: "+info"},
		"no CONFIG": {args: safe, user: []string{"~*", "&*", "+@all", "-config"},
			want: strings.Replace(wellOf, "persistence ok", "persistence unknown", 1), says: "cannot tell appendfsync"},
		"no right to lock": {args: safe, user: []string{"~other:*", "&*", "+@all"},
			want: "role ok, eviction ok, persistence ok, failover ok", says: ""},
		"no right to queues": {args: safe, user: []string{"~*", "resetchannels", "+@all"},
			want: strings.Replace(wellOf, "notices ok", "notices warn", 1), says: "rights for queues"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, c.args...)
			url := "redis://" + server.Addr
			if c.user != nil {
				server.Do(append([]string{"ACL", "SETUSER", "patient", "on", ">SecretWord"}, c.user...)...)
				url = "redis://patient:SecretWord@" + server.Addr
			}
			s := openFromURL(t, url)
			s = New(s.client, &c.opts)
			t.Cleanup(func() { _ = s.Close() })
			if c.opts.RestartGuard > 0 { // which the first use of a prefix waits for, too
				eventually(t, "end of the guard", func() bool {
					res, err := s.Acquire(t.Context(), request("first", 10*time.Millisecond))
					return err == nil && res.Granted
				})
			}
			if what == "no right to lock" {
				findings, err := holdfast.Examine(t.Context(), s, nil)
				if err == nil || !strings.Contains(err.Error(), "must be allowed") || strings.Contains(err.Error(), "Secret") || len(findings) != 4 {
					t.Errorf("%v, %v", findings, err)
				}
				return
			}
			checks, text := examined(t, s, nil)
			if checks != c.want || !strings.Contains(text, c.says) {
				t.Errorf("%s\n%s\nwant %s, and %q", checks, text, c.want, c.says)
			}
		})
	}
}

// A replica takes no locks, and its master may lose them. A server that is not there has no
// findings.
func TestExamineReplicas(t *testing.T) {
	t.Parallel()
	args := []string{"--appendonly", "yes", "--appendfsync", "always"}
	master, replica := servers.StartRedis(t, args...), servers.StartRedis(t, args...)
	follow(t, replica, master)
	checks, text := examined(t, open(t, replica.Addr, nil), nil)
	if checks != "role fail, latency ok, probe fail" || !strings.Contains(text, "connect to its master, "+master.Addr) {
		t.Errorf("of a replica: %s\n%s", checks, text)
	}
	checks, text = examined(t, open(t, master.Addr, nil), nil)
	if checks != strings.Replace(wellOf, "failover ok", "failover warn", 1) || !strings.Contains(text, "one that is planned; want") || !strings.Contains(text, "MinReplicas") {
		t.Errorf("of its master: %s\n%s", checks, text)
	}
	if checks, text = examined(t, open(t, master.Addr, &Options{MinReplicas: 1}), nil); checks != wellOf {
		t.Errorf("of its master with MinReplicas: %s\n%s", checks, text)
	}
	replica.Kill()
	if findings, err := holdfast.Examine(t.Context(), open(t, replica.Addr, nil), nil); err == nil || len(findings) > 0 {
		t.Errorf("of a server that is not there: %v, %v", findings, err)
	}
}

// A server far away, and one with another clock.
func TestExamineDistance(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := faultproxy.Start(t, server.Addr)
	s := open(t, proxy.Addr(), nil)
	if checks, text := examined(t, s, &holdfast.ExamineOptions{TTL: time.Minute}); checks != wellOf {
		t.Errorf("near: %s\n%s", checks, text)
	}
	proxy.Delay(faultproxy.Down, 150*time.Millisecond, 160*time.Millisecond)
	if checks, text := examined(t, s, &holdfast.ExamineOptions{TTL: 4 * time.Second, NoProbe: true}); !strings.HasSuffix(checks, ", latency warn") || !strings.Contains(text, "10 requests in a third of the TTL of 4s") {
		t.Errorf("far: %s\n%s", checks, text)
	}
	if checks, text := examined(t, s, &holdfast.ExamineOptions{TTL: 300 * time.Millisecond, NoProbe: true}); !strings.HasSuffix(checks, ", latency fail") {
		t.Errorf("too far: %s\n%s", checks, text)
	}
}

// Examinations leave nothing, also of a server that is ill.
func TestExamineLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s := open(t, server.Addr, nil)
	grant(t, s, "held", time.Minute)
	keys := func() string {
		keys := strings.Fields(server.Do("KEYS", "*"))
		slices.Sort(keys)
		return strings.Join(keys, " ")
	}
	var seen []string
	for range 2 {
		examined(t, s, nil)
		seen = append(seen, keys())
	}
	want := []string{"lock:\x1fcounter", "lock:\x1fqueues", "lock:held"} // the second ends a minute after the last place
	slices.Sort(want)
	if seen[0] != strings.Join(want, " ") || seen[1] != seen[0] {
		t.Errorf("left: %q", seen)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	examined(t, s, nil)
	if left := keys(); left != seen[0] {
		t.Errorf("left on a full server: %q", left)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := holdfast.Examine(canceled, s, nil); err == nil || keys() != seen[0] {
		t.Errorf("canceled: %v, left %q", err, keys())
	}
}

// With Sentinels the master is examined.
func TestExamineSentinel(t *testing.T) {
	t.Parallel()
	set := servers.StartRedisSentinel(t, "--appendonly", "yes", "--appendfsync", "always")
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: set.Master, SentinelAddrs: set.Sentinels, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	if checks, text := examined(t, New(client, &Options{MinReplicas: 1}), nil); checks != wellOf {
		t.Errorf("%s\n%s", checks, text)
	}
	set.Nodes[0].Do("CONFIG", "SET", "maxmemory", "100mb")
	set.Nodes[0].Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	checks, text := examined(t, New(client, nil), nil)
	_, port, _ := strings.Cut(set.Nodes[0].Addr, ":")
	if checks != "role ok, eviction fail, persistence ok, failover warn"+probed || !strings.Contains(text, "redis.eviction (:"+port+")") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// Of a cluster every master is examined, and that no slot is without one.
func TestExamineCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, "--appendonly", "yes", "--appendfsync", "always", "--cluster-require-full-coverage", "no")
	client := clusterClient(t, cluster)
	one := "role ok, eviction ok, persistence ok, failover ok, slots ok"
	if checks, text := examined(t, New(client, &Options{MinReplicas: 1}), nil); checks != one+", "+one+", "+one+probed {
		t.Errorf("%s\n%s", checks, text)
	}
	ill := cluster.Masters[1]
	ill.Do("CONFIG", "SET", "maxmemory", "100mb")
	ill.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	_, text := examined(t, New(client, &Options{MinReplicas: 1}), nil)
	if strings.Count(text, "fail redis.") != 1 || !strings.Contains(text, "fail redis.eviction ("+ill.Addr+")") {
		t.Errorf("with one ill master:\n%s", text)
	}
	ill.Do("CLUSTER", "DELSLOTS", strings.TrimSpace(ill.Do("CLUSTER", "KEYSLOT", "lock:lost")))
	_, text = examined(t, New(client, &Options{MinReplicas: 1}), &holdfast.ExamineOptions{NoProbe: true})
	if !strings.Contains(text, "fail redis.slots ("+ill.Addr+"): 16383 of 16384") {
		t.Errorf("without a slot:\n%s", text)
	}
}
