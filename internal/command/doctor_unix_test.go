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
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// A patient is a store to examine.
type patient struct {
	urls  []string // the store, or the nodes of a quorum
	trace func(t *testing.T) string
	code  int
	check string // the finding with the severity of code, "" for none above a note
	says  string // in it, or in the error
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

// shows reports whether what "doctor --json" writes has the finding of a patient, and of one that
// is well nothing else above a note.
func (p *patient) shows(t *testing.T, out string) bool {
	t.Helper()
	status := map[int]string{exitWarned: "warn", exitUnfit: "fail"}[p.code]
	found, above := false, false
	for line := range strings.Lines(out) {
		var view struct{ ID, Status, Found, Want, Remedy string }
		if err := json.Unmarshal([]byte(line), &view); err != nil || view.ID == "" || view.Found == "" {
			t.Errorf("%s: %v", line, err)
		}
		above = above || view.Status != "ok" && view.Status != "note"
		text := strings.Join([]string{view.Found, view.Want, view.Remedy}, " ")
		found = found || view.ID == p.check && (status == "" || view.Status == status) && strings.Contains(text, p.says)
	}
	if p.check == "" {
		return !above
	}
	return found
}

// examineTwice checks what doctor finds, and that a second examination changes nothing.
func (p *patient) examineTwice(t *testing.T, flags ...string) {
	t.Helper()
	var traces []string
	for range 2 {
		out, errs, code := runDoctor(t, p.urls, append(flags, "--json")...)
		if code != p.code {
			t.Errorf("exit code %d, want %d:\n%s%s", code, p.code, out, errs)
		}
		switch {
		case p.code <= exitUnfit && !p.shows(t, out):
			t.Errorf("want %s with %q:\n%s%s", p.check, p.says, out, errs)
		case p.code == 0 && errs != "", p.code > exitUnfit && !strings.Contains(errs, p.says):
			t.Errorf("want the error %q: %s", p.says, errs)
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
		{[]string{"file:" + well}, filesOf(well), 0, "", ""},
		{nodes, nil, 0, "", ""},
		{[]string{"file:" + ill}, filesOf(ill), exitWarned, "file.rights", "chmod +t " + ill},
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
		"well":         {[]string{url(nodes[0])}, keysOf(nodes[0]), 0, "", ""},
		"least rights": {[]string{"redis://patient:word@" + nodes[3].Addr}, keysOf(nodes[3]), 0, "", ""},
		"Sentinels":    {[]string{sentinels + "?min_replicas=1"}, keysOf(set.Nodes...), 0, "", ""},
		"cluster":      {[]string{slots + "?min_replicas=1"}, nil, 0, "", ""},
		"quorum":       {[]string{url(nodes[0]), url(nodes[1]), url(nodes[2])}, keysOf(nodes[:3]...), 0, "", ""},
		"forgetful":    {[]string{url(forgetful)}, keysOf(forgetful), exitWarned, "redis.persistence", "appendonly yes"},
		"evicting":     {[]string{url(evicting)}, keysOf(evicting), exitUnfit, "redis.eviction", " CONFIG SET maxmemory-policy noeviction"},
		"replica":      {[]string{url(replica)}, nil, exitUnfit, "redis.role", "connect to its master"},
		"failover":     {[]string{sentinels}, keysOf(set.Nodes...), exitWarned, "redis.failover", "min_replicas=1"},
		"down":         {[]string{url(down)}, nil, exitUnavailable, "", "connection refused"},
		"even quorum":  {[]string{url(nodes[0]), url(nodes[1]), url(nodes[2]), url(nodes[3])}, keysOf(nodes...), exitWarned, "quorum.size", "3 nodes survive as many failures"},
	} {
		t.Run(what, func(t *testing.T) { p.examineTwice(t) })
	}
	t.Run("slot without a server", func(t *testing.T) {
		lost := strings.TrimSpace(cluster.Masters[0].Do("CLUSTER", "KEYSLOT", "lock:lost"))
		for _, node := range cluster.Masters { // None claims it again.
			node.Do("CLUSTER", "DELSLOTS", lost)
		}
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
		{[]string{url}, rowsOf(url), 0, "", ""},
		{[]string{advisoryURL(url)}, nil, 0, "", ""},
		{[]string{bare}, nil, exitUnfit, "postgres.schema", "holdfast migrate"},
		{[]string{advisoryURL(bare)}, nil, exitUnfit, "advisory.tokens", "is not there"},
	} {
		p.examineTwice(t)
	}
	pooler := servers.StartPgBouncer(t, server).URL("postgres")
	for _, p := range []patient{
		{[]string{pooler}, rowsOf(url), exitWarned, "postgres.pooler", "listen=false"},
		{[]string{pooler + "&listen=false"}, rowsOf(url), 0, "", ""},
		{[]string{advisoryURL(pooler)}, nil, exitUnfit, "advisory.pooler", "a pooler is in the path"},
	} {
		p.examineTwice(t)
	}
	psql(t, url, "ALTER TABLE distributed_locks SET UNLOGGED")
	ill := patient{[]string{url}, rowsOf(url), exitWarned, "postgres.unlogged", "SET LOGGED"}
	ill.examineTwice(t)
	psql(t, url, "ALTER TABLE distributed_locks SET LOGGED")

	standby := servers.StartPostgresStandby(t, server, "standby").URL("postgres")
	for _, p := range []patient{
		{[]string{standby}, rowsOf(url), exitUnfit, "postgres.writable", "this server is a standby"},
		{[]string{advisoryURL(standby)}, nil, exitUnfit, "advisory.primary", "this server is a standby"},
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
	well := patient{[]string{url + "&require_standby=true"}, rowsOf(url), 0, "", ""}
	well.examineTwice(t)
}

// TestDoctorOfSettings makes one server of each kind ill in ten ways, and well in ten, and examines
// it twice in each.
func TestDoctorOfSettings(t *testing.T) {
	t.Parallel()
	type setting struct {
		change, mend string // commands of the server
		url          func(string) string
		code         int
		check, says  string
	}
	same := func(url string) string { return url }
	with := func(parameter string) func(string) string {
		return func(url string) string { return url + parameter }
	}
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		node := servers.StartRedisFromFile(t, "appendonly yes", "appendfsync always")
		right := func(rights string) (string, string) {
			return "ACL SETUSER patient " + rights, "ACL SETUSER patient reset on >word ~* &* +@all"
		}
		noKeys, again := right("resetkeys ~other:*")
		noChannels, _ := right("resetchannels")
		noHash, _ := right("-hset")
		noScripts, _ := right("-eval -evalsha")
		noInfo, _ := right("-info")
		noShares, _ := right("-hsetnx")
		node.Do(strings.Fields(again)...)
		node.Do("CONFIG", "REWRITE")                                // the statistics count it before the first CONFIG SET
		runDoctor(t, []string{"redis://patient:word@" + node.Addr}) // Its probe makes the counter of tokens, which stays.
		const safe = "CONFIG SET maxmemory 0 maxmemory-policy noeviction appendonly yes appendfsync always"
		for what, c := range map[string]setting{
			"allkeys-lru":    {"CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru", safe, same, exitUnfit, "redis.eviction", "noeviction"},
			"volatile-ttl":   {"CONFIG SET maxmemory 100mb maxmemory-policy volatile-ttl", safe, same, exitUnfit, "redis.eviction", "noeviction"},
			"no file":        {"CONFIG SET appendonly no", safe, same, exitWarned, "redis.persistence", "appendonly yes"},
			"no sync":        {"CONFIG SET appendfsync no", safe, same, exitWarned, "redis.persistence", "appendfsync no"},
			"replicas":       {safe, safe, with("?min_replicas=1"), exitUnfit, "redis.failover", "before it has 1"},
			"short guard":    {safe, safe, with("?restart_guard=50ms"), exitWarned, "redis.persistence", "restart_guard=30s"},
			"no keys":        {noKeys, again, same, exitUnfit, "redis.rights", "ACL SETUSER patient '~lock:*'"},
			"no channels":    {noChannels, again, same, exitWarned, "redis.rights", "ACL SETUSER patient '&lock:*'"},
			"no hash":        {noHash, again, same, exitWarned, "redis.rights", "ACL SETUSER patient +hset"},
			"no scripts":     {noScripts, again, same, exitUnfit, "redis.rights", "+eval +evalsha"},
			"well":           {safe, safe, same, 0, "", ""},
			"limit":          {"CONFIG SET maxmemory 100mb", safe, same, 0, "redis.eviction", "maxmemory-policy is noeviction"},
			"no limit":       {"CONFIG SET maxmemory-policy allkeys-lru", safe, same, 0, "redis.eviction", "memory is not limited"},
			"each second":    {"CONFIG SET appendfsync everysec", safe, same, 0, "redis.persistence", "everysec"},
			"another prefix": {safe, safe, with("?prefix=app:"), 0, "", ""},
			"no prefix":      {safe, safe, with("?prefix="), 0, "", ""},
			"a database":     {safe, safe, with("/3"), 0, "", ""},
			"no shares":      {noShares, again, same, 0, "redis.rights", "shared and limited holds are refused"},
			"no INFO":        {noInfo, again, same, 0, "redis.role", "cannot tell"},
			"idle clients":   {"CONFIG SET timeout 60", safe, same, 0, "", ""},
		} {
			node.Do(strings.Fields(c.change)...)
			p := patient{[]string{c.url("redis://patient:word@" + node.Addr)}, keysOf(node), c.code, c.check, c.says}
			t.Run(what, func(t *testing.T) { p.examineTwice(t) })
			node.Do(strings.Fields(c.mend)...)
			node.Do("CONFIG", "REWRITE")
		}
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := servers.StartPostgres(t)
		admin := server.URL("postgres")
		url := strings.Replace(admin, "postgres@", "patient@", 1)
		migrated(t, admin)
		psql(t, admin, "CREATE ROLE patient LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks, distributed_locks_waiters, distributed_locks_shares TO patient")
		role := func(setting, value string) (string, string) {
			return "ALTER ROLE patient SET " + setting + " = " + value, "ALTER ROLE patient RESET " + setting
		}
		readOnly, readWrite := role("default_transaction_read_only", "on")
		asynchronous, synchronous := role("synchronous_commit", "off")
		local, _ := role("synchronous_commit", "local")
		timeout, noTimeout := role("statement_timeout", "'20s'")
		path, noPath := role("search_path", "pg_temp")
		zone, noZone := role("timezone", "'Asia/Kathmandu'")
		style, noStyle := role("datestyle", "'German'")
		for what, c := range map[string]setting{
			"read-only":     {readOnly, readWrite, same, exitUnfit, "postgres.writable", "read-only"},
			"asynchronous":  {asynchronous, synchronous, same, exitWarned, "postgres.synchronous-commit", "synchronous_commit is off"},
			"so meant":      {"SELECT", "SELECT", with("&synchronous_commit=off"), exitWarned, "postgres.synchronous-commit", "synchronous_commit is off"},
			"no update":     {"REVOKE UPDATE ON distributed_locks FROM patient", "GRANT UPDATE ON distributed_locks TO patient", same, exitUnfit, "postgres.rights", "GRANT SELECT, INSERT"},
			"no insert":     {"REVOKE INSERT ON distributed_locks FROM patient", "GRANT INSERT ON distributed_locks TO patient", same, exitUnfit, "postgres.rights", "GRANT SELECT, INSERT"},
			"no usage":      {"REVOKE USAGE ON SCHEMA public FROM PUBLIC", "GRANT USAGE ON SCHEMA public TO PUBLIC", same, exitUnfit, "postgres.rights", "GRANT USAGE ON SCHEMA"},
			"no table":      {"SELECT", "SELECT", with("&table=elsewhere"), exitUnfit, "postgres.schema", "holdfast migrate"},
			"unlogged":      {"ALTER TABLE distributed_locks SET UNLOGGED", "ALTER TABLE distributed_locks SET LOGGED", same, exitWarned, "postgres.unlogged", "SET LOGGED"},
			"index":         {"CREATE INDEX costly ON distributed_locks (expires_at)", "DROP INDEX costly", same, exitWarned, "postgres.index", "DROP INDEX"},
			"creators":      {"GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC", same, exitWarned, "postgres.creators", "REVOKE CREATE"},
			"well":          {"SELECT", "SELECT", same, 0, "", ""},
			"local commit":  {local, synchronous, same, 0, "", ""},
			"a timeout":     {timeout, noTimeout, same, 0, "", ""},
			"search path":   {path, noPath, same, 0, "", ""},
			"time zone":     {zone, noZone, same, 0, "", ""},
			"date style":    {style, noStyle, same, 0, "", ""},
			"another index": {"CREATE INDEX harmless ON distributed_locks (lock_name)", "DROP INDEX harmless", same, 0, "", ""},
			"no notices":    {"SELECT", "SELECT", with("&listen=false"), 0, "", ""},
			"a creator":     {"GRANT CREATE ON SCHEMA public TO postgres", "SELECT", same, 0, "", ""},
			"few":           {"ALTER ROLE patient CONNECTION LIMIT 8", "ALTER ROLE patient CONNECTION LIMIT -1", same, 0, "", ""},
		} {
			psql(t, admin, c.change)
			p := patient{[]string{c.url(url)}, rowsOf(admin), c.code, c.check, c.says}
			t.Run(what, func(t *testing.T) { p.examineTwice(t) })
			psql(t, admin, c.mend)
		}
	})
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
	if fmt.Sprint(ids) != "[redis.version redis.role redis.eviction redis.persistence redis.failover redis.tls redis.rights latency probe clock notices]" {
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

// A password in the URL of a node of a quorum is in the list of processes, too, and the verdict
// counts what was found.
func TestDoctorOfQuorumWithPassword(t *testing.T) {
	t.Parallel()
	nodes := servers.StartRedises(t, 3)
	var urls []string
	for _, node := range nodes {
		node.Do("ACL", "SETUSER", "patient", "on", ">SecretWord", "~*", "&*", "+@all")
		urls = append(urls, "redis://patient:SecretWord@"+node.Addr)
	}
	out, err := exec.Command("holdfast", "doctor", "--no-probe", "--store", quorumstore.URL(urls...)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "in the list of processes") || strings.Contains(string(out), "SecretWord") {
		t.Errorf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?m)^holdfast: 4 warnings in \d+ checks$`).Match(out) {
		t.Errorf("the verdict:\n%s", out)
	}
}
