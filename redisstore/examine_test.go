//go:build unix

package redisstore

import (
	"context"
	"errors"
	"net"
	"net/url"
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
	wellOf = "version ok, role ok, eviction ok, persistence ok, failover ok, tls ok, rights ok" + probed
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
		"rewrites without":      {args: with("--no-appendfsync-on-rewrite", "yes"), want: strings.Replace(wellOf, "persistence ok", "persistence warn", 1), says: "no-appendfsync-on-rewrite no"},
		"short guard":           {opts: Options{RestartGuard: 50 * time.Millisecond}, want: strings.Replace(wellOf, "persistence ok", "persistence warn", 1), says: "try restart_guard=30s"},
		"too few replicas": {args: safe, opts: Options{MinReplicas: 1},
			want: "version ok, role ok, eviction ok, persistence ok, failover fail, tls ok, rights ok, latency ok, probe warn", says: "before it has 1"},
		"no INFO": {args: safe, user: []string{"~*", "&*", "+@all", "-info"},
			want: "version unknown, role unknown, eviction unknown, persistence unknown, failover unknown, tls ok, rights ok" + probed, says: "+info"},
		"no CONFIG": {args: safe, user: []string{"~*", "&*", "+@all", "-config"},
			want: strings.Replace(wellOf, "persistence ok", "persistence unknown", 1), says: "cannot tell appendfsync"},
		"no right to lock": {args: safe, user: []string{"~other:*", "&*", "+@all"},
			want: "version ok, role ok, eviction ok, persistence ok, failover ok, tls ok, rights fail", says: " ACL SETUSER patient '~lock:*'"},
		"no right to queues": {args: safe, user: []string{"~*", "resetchannels", "+@all"},
			want: strings.Replace(strings.Replace(wellOf, "rights ok", "rights warn", 1), "notices ok", "notices warn", 1), says: "patient lacks the rights '&lock:*': waiters try at intervals"},
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
			checks, text := examined(t, s, nil)
			if checks != c.want || !strings.Contains(text, c.says) {
				t.Errorf("%s\n%s\nwant %s, and %q", checks, text, c.want, c.says)
			}
		})
	}
}

func portOf(server *servers.Redis) string {
	_, port, _ := net.SplitHostPort(server.Addr)
	return port
}

// A server that refuses each change is found without a probe, and by a user without the right to
// run CONFIG as far as INFO shows it.
func TestExamineWhatTakesNoChanges(t *testing.T) {
	t.Parallel()
	safe := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for what, c := range map[string]struct {
		server             *servers.Redis
		ill                func(*servers.Redis)
		want, says, unseen string // unseen is the finding without CONFIG
	}{
		"a snapshot that failed": {servers.StartRedis(t, append(safe, "--save", "3600 1", "--dbfilename", "appendonlydir")... /* a folder is in its place */), func(r *servers.Redis) {
			r.Do("SET", "a", "b")
			r.Do("BGSAVE")
			eventually(t, "snapshot that fails", func() bool { return strings.Contains(r.Do("INFO", "persistence"), "rdb_last_bgsave_status:err") })
		}, "persistence fail", "stop-writes-on-bgsave-error", "persistence unknown"},
		"no room": {servers.StartRedis(t, append(safe, "--maxmemory", "1kb")...), func(*servers.Redis) {}, "eviction fail", "its memory is full", "eviction fail"},
		"no replica": {servers.StartRedis(t, append(safe, "--min-replicas-to-write", "1")...), func(*servers.Redis) {}, "failover fail",
			"0 replicas are in touch with it, want 1", "failover fail"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.server.Do("ACL", "SETUSER", "patient", "on", ">SecretWord", "~*", "&*", "+@all", "-config")
			c.ill(c.server)
			if res, err := open(t, c.server.Addr, nil).Acquire(t.Context(), request("x", time.Minute)); err == nil {
				t.Errorf("the server takes changes: %+v", res)
			}
			for url, want := range map[string]string{"redis://" + c.server.Addr: c.want, "redis://patient:SecretWord@" + c.server.Addr: c.unseen} {
				checks, text := examined(t, openFromURL(t, url), &holdfast.ExamineOptions{NoProbe: true})
				if !strings.Contains(checks, want) || !strings.Contains(text, c.says) {
					t.Errorf("%s\n%s\nwant %s, and %q", checks, text, want, c.says)
				}
			}
		})
	}
}

// The advice of doctor, taken without CONFIG REWRITE, ends with the next restart, and with it the
// locks: the findings before and after.
func TestExamineSettingsThatDoNotLast(t *testing.T) {
	t.Parallel()
	well, ill := wellOf, strings.Replace(wellOf, "persistence ok", "persistence warn", 1)
	for what, c := range map[string]struct {
		server  *servers.Redis
		rewrite bool
		want    string // after CONFIG SET
		says    string
		kept    bool
	}{
		"no file":   {servers.StartRedis(t), false, ill, "in a redis.conf with which the server is started", false},
		"a file":    {servers.StartRedisFromFile(t), false, ill, " CONFIG REWRITE  # after the last CONFIG SET", false},
		"rewritten": {servers.StartRedisFromFile(t), true, strings.Replace(wellOf, "persistence ok", "persistence note", 1), "cannot tell whether a later CONFIG SET", true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t, c.server.Addr, nil)
			if checks, text := examined(t, s, nil); checks != ill || !strings.Contains(text, "try redis-cli -h 127.0.0.1 -p "+portOf(c.server)+" CONFIG SET appendonly yes && redis-cli -h 127.0.0.1 -p "+portOf(c.server)+" CONFIG SET appendfsync always ") {
				t.Errorf("at first: %s\n%s", checks, text)
			}
			c.server.Do("CONFIG", "SET", "appendonly", "yes")
			c.server.Do("CONFIG", "SET", "appendfsync", "always")
			if c.rewrite {
				c.server.Do("CONFIG", "REWRITE")
			}
			eventually(t, "append-only file", func() bool {
				return strings.Contains(c.server.Do("INFO", "persistence"), "aof_rewrite_in_progress:0")
			})
			if checks, text := examined(t, s, nil); checks != c.want || !strings.Contains(text, c.says) {
				t.Errorf("after CONFIG SET: %s\n%s", checks, text)
			}
			c.server.Do("CONFIG", "RESETSTAT")
			if checks, text := examined(t, s, nil); checks == well {
				t.Errorf("after CONFIG RESETSTAT: %s\n%s", checks, text)
			}
			if res, err := s.Acquire(t.Context(), request("x", time.Hour)); err != nil || !res.Granted {
				t.Fatal(res, err)
			}
			c.server.Restart()
			var kept bool
			eventually(t, "answer after the restart", func() bool {
				_, found, err := s.Lookup(t.Context(), "x")
				kept = found
				return err == nil
			})
			if kept != c.kept {
				t.Errorf("after the restart the lock is kept: %v", kept)
			}
			if checks, text := examined(t, s, nil); (checks == well) != c.kept {
				t.Errorf("after the restart: %s\n%s", checks, text)
			}
		})
	}
}

// The file is on from the start, and appendfsync is set by CONFIG SET alone.
func TestExamineSyncThatDoesNotLast(t *testing.T) {
	t.Parallel()
	server := servers.StartRedisFromFile(t, "appendonly yes")
	s := open(t, server.Addr, nil)
	note := strings.Replace(wellOf, "persistence ok", "persistence note", 1)
	for _, c := range []struct{ set, want, says string }{
		{"", note, "everysec"},
		{"SET appendfsync always", strings.Replace(wellOf, "persistence ok", "persistence unknown", 1), "cannot tell whether appendfsync outlasts a restart"},
		{"REWRITE", note, "cannot tell whether a later CONFIG SET"},
	} {
		if c.set != "" {
			server.Do(append([]string{"CONFIG"}, strings.Fields(c.set)...)...)
		}
		if checks, text := examined(t, s, nil); checks != c.want || !strings.Contains(text, c.says) {
			t.Errorf("CONFIG %s: %s\n%s", c.set, checks, text)
		}
	}
	server.Restart()
	eventually(t, "the setting of the file", func() bool {
		checks, _ := examined(t, s, nil)
		return checks == wellOf
	})
}

// A replica takes no locks, and its master may lose them. A server that is not there has no
// findings.
func TestExamineReplicas(t *testing.T) {
	t.Parallel()
	args := []string{"--appendonly", "yes", "--appendfsync", "always"}
	master, replica := servers.StartRedis(t, args...), servers.StartRedis(t, args...)
	follow(t, replica, master)
	checks, text := examined(t, open(t, replica.Addr, nil), nil)
	if checks != "version ok, role fail, tls ok, latency ok, probe fail" || !strings.Contains(text, "connect to its master, "+master.Addr) {
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
	if checks != "version ok, role ok, eviction fail, persistence unknown, failover warn, tls ok, rights ok"+probed || !strings.Contains(text, "redis.eviction (:"+port+")") {
		t.Errorf("%s\n%s", checks, text)
	}
}

// Of a cluster every master is examined, and that no slot is without one.
func TestExamineCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t, "--appendonly", "yes", "--appendfsync", "always", "--cluster-require-full-coverage", "no")
	client := clusterClient(t, cluster)
	one := "version ok, role ok, eviction ok, persistence ok, failover ok, tls ok, rights ok, slots ok"
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

// examineOwn returns the finding of one check of the store.
func examineOwn(t *testing.T, s *Store, check string) driver.Finding {
	t.Helper()
	findings, err := s.Examine(t.Context(), driver.Examination{TTL: time.Minute})
	if err != nil {
		t.Error(err)
	}
	i := slices.IndexFunc(findings, func(f driver.Finding) bool { return f.Check == check })
	if i < 0 {
		t.Fatalf("no %s: %v", check, findings)
	}
	return findings[i]
}

// Each right that is missing is named, with what does not work without it. Without those of locks
// no lock can be taken, looked up, renewed and released: an examination of them ends in a failure.
func TestExamineRights(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	locks := []string{"get", "getrange", "set", "del", "pttl", "pexpire", "zcard", "time", "eval", "evalsha"}
	queues := []string{"exists", "zrem", "hset", "hget", "hdel", "hvals", "hgetall", "publish", "pubsub|numsub", "subscribe"}
	sharing := []string{"hset", "hsetnx", "hget", "hmget", "hdel", "hlen", "hgetall", "zrem", "pexpireat"}
	every := slices.Concat(rights, queues, sharing, []string{"eval", "evalsha", "hello", "ping", "scan", "info", "wait"})
	user := func(name string, more ...string) *Store {
		server.Do("ACL", "SETUSER", name, "reset", "on", ">SecretWord", "~lock:*", "&lock:*", "-@all")
		server.Do(append(append([]string{"ACL", "SETUSER", name}, plus(every)...), more...)...)
		return openFromURL(t, "redis://"+name+":SecretWord@"+server.Addr)
	}
	all := open(t, server.Addr, nil)
	grant(t, all, "held", time.Minute)
	enqueue(t, all, "held") // There is a queue to heed.
	before := server.Do("KEYS", "*")
	if f := examineOwn(t, user("well"), checkRights); f.Severity != driver.SeverityOK {
		t.Errorf("with the rights that are documented: %v", f)
	}
	for _, right := range slices.Compact(slices.Sorted(slices.Values(every))) {
		want := driver.SeverityNote
		switch {
		case right == "hello" || right == "info" || right == "wait" || right == "pexpiretime":
			want = driver.SeverityOK // Nothing needs them, without options.
		case slices.Contains(locks, right):
			want = driver.SeverityFailure
		case slices.Contains(queues, right) || slices.Contains(rights, right) || right == "ping":
			want = driver.SeverityWarning
		}
		s := user("without-"+strings.ReplaceAll(right, "|", "-"), "-"+right)
		f := examineOwn(t, s, checkRights)
		if f.Severity != want || want != driver.SeverityOK && !strings.Contains(f.Remedy, " +"+right) && right != "eval" {
			t.Errorf("without %s: %v, want %v", right, f, want)
		}
		if want == driver.SeverityFailure && right != "eval" { // which only a server needs that does not know the scripts
			_, _, lookup := s.Lookup(t.Context(), "held")
			req := request("own", time.Minute)
			_, acquire := s.Acquire(t.Context(), req)
			_, refusal := s.Acquire(t.Context(), request("held", time.Minute))
			_, renewal := s.Renew(t.Context(), []driver.RenewRequest{{Name: "own", Owner: req.Owner, TTL: time.Hour}})
			_, release := s.Release(t.Context(), driver.ReleaseRequest{Name: "own", Owner: req.Owner})
			if errors.Join(lookup, acquire, refusal, renewal, release) == nil {
				t.Errorf("without %s locks work: %v", right, f)
			}
			server.Do("DEL", "lock:own")
		}
		if right == "eval" && !strings.Contains(f.Remedy, "+eval +evalsha") {
			t.Errorf("without %s: %v", right, f)
		}
	}
	for what, c := range map[string]struct {
		rights   []string
		opts     *Options
		severity driver.Severity
		says     string
	}{
		"other keys":       {[]string{"resetkeys", "~other:*"}, nil, driver.SeverityFailure, "ACL SETUSER patient '~lock:*'"},
		"keys to read":     {[]string{"resetkeys", "%R~lock:*"}, nil, driver.SeverityFailure, "ACL SETUSER patient '~lock:*'"},
		"locks alone":      {[]string{"resetkeys", "~lock:holdfast*"}, nil, driver.SeverityFailure, "ACL SETUSER patient '~lock:*'"},
		"no channels":      {[]string{"resetchannels"}, nil, driver.SeverityWarning, "ACL SETUSER patient '&lock:*'"},
		"another prefix":   {nil, &Options{Prefix: "app[1]:"}, driver.SeverityFailure, `'~app\[1\]:*'`},
		"no INFO, a guard": {[]string{"-info"}, &Options{RestartGuard: time.Minute}, driver.SeverityFailure, "patient +info"},
		"a guard":          {nil, &Options{RestartGuard: time.Minute}, driver.SeverityOK, "all rights"},
		"no WAIT":          {[]string{"-wait"}, &Options{MinReplicas: 1}, driver.SeverityFailure, "patient +wait"},
		"no list":          {[]string{"-scan"}, nil, driver.SeverityNote, "locks cannot be listed"},
		"nothing at all":   {[]string{"-@all", "+info"}, nil, driver.SeverityFailure, "+eval +evalsha"},
	} {
		s := user("patient", c.rights...)
		if f := examineOwn(t, New(s.client, c.opts), checkRights); f.Severity != c.severity || !strings.Contains(f.String(), c.says) {
			t.Errorf("%s: %v, want %v, and %q", what, f, c.severity, c.says)
		}
	}
	if keys := server.Do("KEYS", "*"); keys != before {
		t.Errorf("left: %q, before: %q", keys, before)
	}
}

// A connection that leaves this host is one of TLS, or a warning.
func TestExamineTransport(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr)
		return farConn{conn}, err
	}})
	t.Cleanup(func() { _ = client.Close() })
	if f := examineOwn(t, New(client, nil), checkTLS); f.Severity != driver.SeverityWarning || !strings.Contains(f.String(), "192.0.2.7:6379 is not encrypted") || !strings.Contains(f.Remedy, "rediss://") {
		t.Errorf("to another host: %v", f)
	}
	if f := examineOwn(t, open(t, server.Addr, nil), checkTLS); f.Severity != driver.SeverityOK || !strings.Contains(f.Found, "does not leave") {
		t.Errorf("to this host: %v", f)
	}
	addr, ca := startTLS(t)
	if f := examineOwn(t, openFromURL(t, "rediss://"+addr+"?server_name=redis.test&ca_file="+url.QueryEscape(ca)), checkTLS); f.Severity != driver.SeverityOK || !strings.Contains(f.Found, "encrypted") {
		t.Errorf("with TLS: %v", f)
	}
}

// A farConn is a connection to a server that is on another host.
type farConn struct{ net.Conn }

func (farConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }
func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 6379} }

// A server that is too old takes no locks. Its INFO is that of one.
func TestExamineVersion(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for version, want := range map[string]driver.Severity{
		"redis_version:5.0.14": driver.SeverityFailure, "redis_version:6.0.20": driver.SeverityFailure, "redis_version:?": driver.SeverityUnknown,
		"redis_version:6.2.0": driver.SeverityOK, "redis_version:8.0.1": driver.SeverityOK, "redis_version:7.2.4\r\nvalkey_version:8.1.0": driver.SeverityOK,
	} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		client.AddHook(infoHook(version + "\r\nrole:master\r\n"))
		t.Cleanup(func() { _ = client.Close() })
		if f := examineOwn(t, New(client, nil), checkVersion); f.Severity != want {
			t.Errorf("%s: %v", version, f)
		}
	}
}

// An infoHook is the answer to INFO.
type infoHook string

func (infoHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (infoHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h infoHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(string(h))
			return nil
		}
		return next(ctx, cmd)
	}
}
