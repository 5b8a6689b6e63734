//go:build unix

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A patient is a store to examine.
type patient struct {
	urls  []string // the store, or the nodes of a quorum
	trace func(t *testing.T) string
	code  int
	says  string // of a finding, "" for none above a note
}

// runDoctor returns what "holdfast doctor" writes, and its exit code.
func runDoctor(t *testing.T, urls []string, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command("holdfast", append([]string{"doctor"}, flags...)...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+strings.Join(urls, " "))
	var errors strings.Builder
	cmd.Stderr = &errors
	out, _ := cmd.Output() // The exit code is what counts.
	return string(out), errors.String(), cmd.ProcessState.ExitCode()
}

// examineTwice checks what doctor finds, and that a second examination changes nothing.
func (p *patient) examineTwice(t *testing.T) {
	t.Helper()
	var traces []string
	for range 2 {
		out, errs, code := runDoctor(t, p.urls)
		if code != p.code || !strings.Contains(out+errs, p.says) {
			t.Errorf("exit code %d, want %d and %q:\n%s%s", code, p.code, p.says, out, errs)
		}
		if p.says == "" && (strings.Contains(out, "\nwarn ") || strings.Contains(out, "unknown") || errs != "") {
			t.Errorf("well, and found:\n%s%s", out, errs)
		}
		if p.trace != nil {
			traces = append(traces, p.trace(t))
		}
	}
	if p.trace != nil && (traces[0] != traces[1] || strings.Contains(traces[0], "holdfast-doctor")) {
		t.Errorf("left: %q", traces)
	}
}

func keysOf(nodes ...*servers.Redis) func(*testing.T) string {
	return func(*testing.T) string {
		var all []string
		for _, node := range nodes {
			keys := strings.Fields(node.Do("KEYS", "*"))
			keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, "\x1fqueues") }) // of all names; it ends by itself
			slices.Sort(keys)
			all = append(all, strings.Join(keys, " "))
		}
		return strings.Join(all, "\n")
	}
}

func rowsOf(url string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		out, err := exec.Command("psql", "-qtA", url, "-c", "SELECT lock_name FROM distributed_locks UNION ALL SELECT lock_name FROM distributed_locks_waiters").CombinedOutput()
		if err != nil {
			t.Fatalf("psql: %v: %s", err, out)
		}
		return string(out)
	}
}

func filesOf(dir string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		var all []string
		if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error { all = append(all, path); return err }); err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
}

func psql(t *testing.T, url, text string) {
	t.Helper()
	if out, err := exec.Command("psql", "-q", url, "-c", text).CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
}

func migrated(t *testing.T, urls ...string) {
	t.Helper()
	for _, url := range urls {
		if out, err := exec.Command("holdfast", "migrate", "--store", url).CombinedOutput(); err != nil {
			t.Fatalf("migrate: %v: %s", err, out)
		}
	}
}

func advisoryURL(url string) string {
	return strings.Replace(url, "postgres:", "postgres+advisory:", 1) + "&tokens=tokens"
}

// TestDoctorOfFiles: a folder that is well, one that every user may write, and a quorum of folders.
func TestDoctorOfFiles(t *testing.T) {
	t.Parallel()
	well, ill := t.TempDir(), t.TempDir()
	if err := os.Chmod(well, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(ill, 0o777); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for range 3 {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, "file:"+dir)
	}
	for _, p := range []patient{
		{[]string{"file:" + well}, filesOf(well), 0, ""},
		{nodes, nil, 0, ""},
		{[]string{"file:" + ill}, filesOf(ill), exitWarned, "chmod +t " + ill},
	} {
		p.examineTwice(t)
	}
}

// TestDoctorOfRedis: single servers, Sentinels, clusters and quorums.
func TestDoctorOfRedis(t *testing.T) {
	t.Parallel()
	safe := []string{"--appendonly", "yes", "--appendfsync", "always"}
	nodes := servers.StartRedises(t, 4, safe...)
	forgetful := servers.StartRedis(t)
	evicting := servers.StartRedis(t, append([]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, safe...)...)
	replica, down := servers.StartRedis(t), servers.StartRedis(t)
	host, port, err := net.SplitHostPort(forgetful.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica.Do("REPLICAOF", host, port)
	down.Kill()
	set := servers.StartRedisSentinel(t, safe...)
	cluster := servers.StartRedisCluster(t, append([]string{"--cluster-require-full-coverage", "no"}, safe...)...)
	url := func(node *servers.Redis) string { return "redis://" + node.Addr }
	sentinels := "redis+sentinel://" + set.Sentinels[0] + "/" + set.Master
	slots := "redis+cluster://" + cluster.Masters[0].Addr
	rights := "eval evalsha exists get getrange set del pttl pexpire pexpiretime zadd zcard zscore zrange zremrangebyscore time scan hello ping type " +
		"info config|get zrem hset hget hdel hvals hgetall publish subscribe pubsub|numsub"
	words := []string{"ACL", "SETUSER", "patient", "on", ">word", "~lock:*", "&lock:*", "-@all"}
	for right := range strings.FieldsSeq(rights) {
		words = append(words, "+"+right)
	}
	nodes[3].Do(words...)
	for what, p := range map[string]patient{
		"well":             {[]string{url(nodes[0])}, keysOf(nodes[0]), 0, ""},
		"least rights":     {[]string{"redis://patient:word@" + nodes[3].Addr}, keysOf(nodes[3]), 0, ""},
		"Sentinels":        {[]string{sentinels + "?min_replicas=1"}, keysOf(set.Nodes...), 0, ""},
		"cluster":          {[]string{slots + "?min_replicas=1"}, nil, 0, ""},
		"quorum":           {[]string{url(nodes[0]), url(nodes[1]), url(nodes[2])}, keysOf(nodes[:3]...), 0, ""},
		"forgetful":        {[]string{url(forgetful)}, keysOf(forgetful), exitWarned, "appendonly yes"},
		"evicting":         {[]string{url(evicting)}, keysOf(evicting), exitUnfit, "redis-cli CONFIG SET maxmemory-policy noeviction"},
		"replica":          {[]string{url(replica)}, nil, exitUnfit, "connect to its master"},
		"failover":         {[]string{sentinels}, keysOf(set.Nodes...), exitWarned, "min_replicas=1"},
		"down":             {[]string{url(down)}, nil, exitUnavailable, "connection refused"},
		"even quorum":      {[]string{url(nodes[0]), url(nodes[1]), url(nodes[2]), url(nodes[3])}, keysOf(nodes...), exitWarned, "3 nodes survive as many failures"},
		"one server twice": {[]string{url(nodes[0]), url(nodes[1]), strings.Replace(url(nodes[0]), "127.0.0.1", "localhost", 1)}, keysOf(nodes...), exitUnfit, "has two votes"},
	} {
		t.Run(what, func(t *testing.T) { p.examineTwice(t) })
	}
	t.Run("slot without a server", func(t *testing.T) {
		ill := cluster.Masters[0]
		ill.Do("CLUSTER", "DELSLOTS", strings.TrimSpace(ill.Do("CLUSTER", "KEYSLOT", "lock:lost")))
		out, errs, code := runDoctor(t, []string{slots + "?min_replicas=1"}, "--no-probe")
		if code != exitUnfit || !strings.Contains(out, "redis.slots") || !strings.Contains(out, "16383 of 16384") {
			t.Errorf("%d: %s%s", code, out, errs)
		}
	})
}

// TestDoctorOfPostgres: the table and advisory locks.
func TestDoctorOfPostgres(t *testing.T) {
	t.Parallel()
	server, other := servers.StartPostgres(t), servers.StartPostgres(t)
	url, bare := server.URL("postgres"), other.URL("postgres")
	migrated(t, url, advisoryURL(url))
	for _, p := range []patient{
		{[]string{url}, rowsOf(url), 0, ""},
		{[]string{advisoryURL(url)}, nil, 0, ""},
		{[]string{bare}, nil, exitUnfit, "holdfast migrate"},
		{[]string{advisoryURL(bare)}, nil, exitUnfit, "is not there"},
	} {
		p.examineTwice(t)
	}
	pooler := servers.StartPgBouncer(t, server).URL("postgres")
	for _, p := range []patient{
		{[]string{pooler}, rowsOf(url), exitWarned, "listen=false"},
		{[]string{pooler + "&listen=false"}, rowsOf(url), 0, ""},
		{[]string{advisoryURL(pooler)}, nil, exitUnfit, "a pooler is in the path"},
	} {
		p.examineTwice(t)
	}
	psql(t, url, "ALTER TABLE distributed_locks SET UNLOGGED")
	ill := patient{[]string{url}, rowsOf(url), exitWarned, "SET LOGGED"}
	ill.examineTwice(t)
	psql(t, url, "ALTER TABLE distributed_locks SET LOGGED")

	standby := servers.StartPostgresStandby(t, server, "standby").URL("postgres")
	for _, p := range []patient{
		{[]string{standby}, rowsOf(url), exitUnfit, "this server is a standby"},
		{[]string{advisoryURL(standby)}, nil, exitUnfit, "this server is a standby"},
	} {
		p.examineTwice(t)
	}
	psql(t, url, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	psql(t, url, "SELECT pg_reload_conf()")
	for { // until the standby is synchronous
		if _, _, code := runDoctor(t, []string{url}, "--no-probe"); code == 0 {
			break
		}
	}
	well := patient{[]string{url + "&require_standby=true"}, rowsOf(url), 0, ""}
	well.examineTwice(t)
}

// The flags: --strict raises the exit code by one, --json has every finding, --ttl judges the
// network, -q has an exit code alone, and a password on the command line is a warning.
func TestDoctorFlags(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	noted := servers.StartRedis(t, "--appendonly", "yes")
	refusing := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	refusing.Do("ACL", "SETUSER", "default", "-config")
	for _, c := range []struct {
		node  *servers.Redis
		flags []string
		code  int
	}{
		{server, nil, exitWarned}, {server, []string{"--strict"}, exitUnfit}, {server, []string{"-q"}, exitWarned},
		{noted, nil, 0}, {noted, []string{"--strict"}, 0},
		{refusing, nil, 0}, {refusing, []string{"--strict"}, exitWarned},
		{server, []string{"--ttl", "10ms", "--no-probe"}, exitWarned},
		{server, []string{"--ttl", "1ms"}, exitUsage}, {server, []string{"name"}, exitUsage},
	} {
		out, errs, code := runDoctor(t, []string{"redis://" + c.node.Addr}, c.flags...)
		if code != c.code && (code != exitUnfit || !slices.Contains(c.flags, "10ms")) {
			t.Errorf("%q: %d, want %d:\n%s%s", c.flags, code, c.code, out, errs)
		}
		if slices.Contains(c.flags, "-q") != (errs == "") && code != 0 {
			t.Errorf("%q: %q", c.flags, errs)
		}
	}
	out, _, _ := runDoctor(t, []string{"redis://" + server.Addr}, "--json")
	var ids []string
	for line := range strings.Lines(out) {
		var view map[string]string
		if err := json.Unmarshal([]byte(line), &view); err != nil || view["store"] != "redis" || view["status"] == "" || view["found"] == "" {
			t.Errorf("%s: %v", line, err)
		}
		ids = append(ids, view["id"])
		if view["id"] == "redis.persistence" && (view["status"] != "warn" || view["want"] == "" || view["remedy"] == "" || view["server"] != server.Addr) {
			t.Error(line)
		}
	}
	if fmt.Sprint(ids) != "[redis.role redis.eviction redis.persistence redis.failover latency probe clock notices]" {
		t.Errorf("%q", ids)
	}
	server.Do("ACL", "SETUSER", "patient", "on", ">SecretWord", "~*", "&*", "+@all")
	_, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := exec.Command("holdfast", "doctor", "--store", "redis://patient:SecretWord@127.0.0.1:"+port).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(secret), "in the list of processes") || strings.Contains(string(secret), "SecretWord") {
		t.Errorf("%s, %v", secret, err)
	}
}
