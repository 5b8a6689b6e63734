//go:build unix

package command

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// advisoryLocksOf waits until no session has an advisory lock: those of connections that were
// closed end a moment later.
func advisoryLocksOf(url string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		for {
			out, err := exec.Command("psql", "-qtA", url, "-c", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").CombinedOutput()
			if err != nil {
				t.Fatalf("psql: %v: %s", err, out)
			}
			if strings.TrimSpace(string(out)) == "0" {
				return ""
			}
		}
	}
}

// TestDoctorOfAdvisory makes a server ill for advisory locks in each way that doctor knows and in
// others that it finds by its probe, and well in ten.
func TestDoctorOfAdvisory(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "max_connections=20", "max_locks_per_transaction=64")
	admin := server.URL("postgres")
	url := strings.Replace(advisoryURL(admin), "postgres@", "patient@", 1)
	plain := strings.TrimSuffix(url, "&tokens=tokens")
	migrated(t, advisoryURL(admin))
	const well = "ALTER ROLE patient RESET ALL; ALTER ROLE patient LOGIN CONNECTION LIMIT -1; GRANT USAGE, UPDATE ON SEQUENCE tokens TO patient; GRANT CONNECT ON DATABASE postgres TO PUBLIC"
	psql(t, admin, "CREATE ROLE patient; "+well)
	standby := servers.StartPostgresStandby(t, server, "standby").URL("postgres")
	pooler := servers.StartPgBouncer(t, server).URL("postgres")
	sessions := servers.StartPgBouncer(t, server, "pool_mode=session").URL("postgres")
	for what, c := range map[string]struct {
		change string
		patient
	}{
		"standby":             {"", patient{urls: []string{advisoryURL(standby)}, code: exitUnfit, check: "advisory.primary", says: "this server is a standby"}},
		"pooler":              {"", patient{urls: []string{advisoryURL(pooler)}, code: exitUnfit, check: "advisory.pooler", says: "a pooler is in the path"}},
		"no sequence":         {"", patient{urls: []string{url + "elsewhere"}, code: exitUnfit, check: "advisory.tokens", says: "is not there"}},
		"no right to it":      {"REVOKE ALL ON SEQUENCE tokens FROM patient", patient{urls: []string{url}, code: exitUnfit, check: "advisory.tokens", says: `tokens" TO "patient"`}},
		"no right to set it":  {"REVOKE UPDATE ON SEQUENCE tokens FROM patient", patient{urls: []string{url}, code: exitUnfit, check: "advisory.tokens", says: "GRANT USAGE, UPDATE"}},
		"idle for a second":   {"ALTER ROLE patient SET idle_session_timeout = '1s'", patient{urls: []string{url}, code: exitWarned, check: "advisory.idle-session-timeout", says: "idle_session_timeout is 1s"}},
		"idle for nearly two": {"ALTER ROLE patient SET idle_session_timeout = 1999", patient{urls: []string{url}, code: exitWarned, check: "advisory.idle-session-timeout", says: "RESET idle_session_timeout"}},
		"read-only":           {"ALTER ROLE patient SET default_transaction_read_only = on", patient{urls: []string{url}, code: exitUnfit, check: "probe", says: "read-only"}},
		"no login":            {"ALTER ROLE patient NOLOGIN", patient{urls: []string{url}, code: exitUnavailable, says: "not permitted to log in"}},
		"no connection":       {"ALTER ROLE patient CONNECTION LIMIT 0", patient{urls: []string{url}, code: exitUnavailable, says: "too many connections"}},
		"no database":         {"REVOKE CONNECT ON DATABASE postgres FROM PUBLIC", patient{urls: []string{url}, code: exitUnavailable, says: "permission denied for database"}},
		"well":                {"", patient{urls: []string{url}}},
		"no tokens":           {"", patient{urls: []string{plain}, check: "advisory.tokens", says: "no fencing tokens"}},
		"pooler of sessions":  {"", patient{urls: []string{advisoryURL(sessions) + "&session_pooled=true"}, check: "advisory.pooler", says: "pool_mode = session"}},
		"idle for two":        {"ALTER ROLE patient SET idle_session_timeout = '2s'", patient{urls: []string{url}}},
		"idle for a day":      {"ALTER ROLE patient SET idle_session_timeout = '1d'", patient{urls: []string{url}}},
		"a timeout":           {"ALTER ROLE patient SET statement_timeout = '20s'", patient{urls: []string{url}}},
		"asynchronous":        {"ALTER ROLE patient SET synchronous_commit = off", patient{urls: []string{url}}},
		"search path":         {"ALTER ROLE patient SET search_path = pg_temp, public", patient{urls: []string{url}}},
		"time zone":           {"ALTER ROLE patient SET timezone = 'Asia/Kathmandu'", patient{urls: []string{url}}},
		"date style":          {"ALTER ROLE patient SET datestyle = 'German'", patient{urls: []string{url}}},
		"few connections":     {"ALTER ROLE patient CONNECTION LIMIT 8", patient{urls: []string{url}}},
	} {
		if c.change != "" {
			psql(t, admin, c.change)
		}
		c.trace = advisoryLocksOf(admin)
		t.Run(what, func(t *testing.T) { c.examineTwice(t) })
		psql(t, admin, well)
	}
	t.Run("full lock table", func(t *testing.T) {
		holder := exec.CommandContext(t.Context(), "psql", "-qtA", admin, "-c", "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 1200) AS n", "-c", "SELECT pg_sleep(600)")
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
		for { // until it has them
			out, err := exec.Command("psql", "-qtA", admin, "-c", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").CombinedOutput()
			if err != nil {
				t.Fatalf("psql: %v: %s", err, out)
			}
			if strings.TrimSpace(string(out)) == "1200" {
				break
			}
		}
		(&patient{urls: []string{url}, code: exitWarned, check: "advisory.lock-table", says: "max_locks_per_transaction"}).examineTwice(t)
	})
}

// folder makes a folder with a mode.
func folder(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// usedFolder makes a folder in which a lock was taken, so that it has all that a store makes.
func usedFolder(t *testing.T) string {
	t.Helper()
	dir := folder(t, 0o700)
	if out, err := exec.Command("holdfast", "run", "x", "--store", "file:"+dir, "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestDoctorOfFolders: folders that are ill and well. What a host has too little of is in
// TestDoctorOfHosts.
func TestDoctorOfFolders(t *testing.T) {
	t.Parallel()
	within := func(inner string, change func(path string) error) string {
		dir := usedFolder(t)
		if err := change(filepath.Join(dir, inner)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	open := func(path string) error { return os.Chmod(path, 0o777) }
	sticky := func(path string) error { return os.Chmod(path, 0o777|os.ModeSticky) }
	strange := func(path string) error { return errors.Join(sticky(filepath.Dir(path)), os.Chown(path, 65534, -1)) }
	file := filepath.Join(t.TempDir(), "file")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(usedFolder(t), link)); err != nil {
		t.Fatal(err)
	}
	all := map[string]patient{
		"open to all":         {urls: []string{"file:" + folder(t, 0o777)}, code: exitWarned, check: "file.rights", says: "chmod +t"},
		"open to others":      {urls: []string{"file:" + folder(t, 0o707)}, code: exitWarned, check: "file.rights", says: "chmod +t"},
		"unreadable to all":   {urls: []string{"file:" + folder(t, 0o733)}, code: exitWarned, check: "file.rights", says: "chmod +t"},
		"locks open to all":   {urls: []string{"file:" + within("locks", open)}, code: exitWarned, check: "file.rights", says: "chmod +t"},
		"sessions are open":   {urls: []string{"file:" + within("sessions", open)}, code: exitWarned, check: "file.rights", says: "chmod +t"},
		"a file":              {urls: []string{"file:" + file}, code: exitUnavailable, says: "not a directory"},
		"below a file":        {urls: []string{"file:" + file + "/locks"}, code: exitUnavailable, says: "not a directory"},
		"well":                {urls: []string{"file:" + folder(t, 0o700)}},
		"of a group":          {urls: []string{"file:" + folder(t, 0o770)}},
		"readable":            {urls: []string{"file:" + folder(t, 0o755)}},
		"of all, sticky":      {urls: []string{"file:" + folder(t, 0o777|os.ModeSticky)}},
		"of a group, set gid": {urls: []string{"file:" + folder(t, 0o770|os.ModeSetgid)}},
		"used":                {urls: []string{"file:" + usedFolder(t)}},
		"locks sticky":        {urls: []string{"file:" + within("locks", sticky)}},
		"sessions sticky":     {urls: []string{"file:" + within("sessions", sticky)}},
		"link":                {urls: []string{"file:" + link}},
		"three slashes":       {urls: []string{"file://" + folder(t, 0o700)}},
		"network allowed":     {urls: []string{"file:" + folder(t, 0o700) + "?allow_network=true"}},
	}
	if os.Geteuid() == 0 { // which may give files away
		all["locks of another"] = patient{urls: []string{"file:" + within("locks", strange)}, code: exitWarned, check: "file.rights", says: "belongs to the user 65534"}
		all["sessions of another"] = patient{urls: []string{"file:" + within("sessions", strange)}, code: exitWarned, check: "file.rights", says: "chown"}
	}
	for what, p := range all {
		if dir, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p.urls[0], "file:"), "//"), "?"); !strings.Contains(what, "file") {
			p.trace = filesOf(dir)
		}
		t.Run(what, func(t *testing.T) { p.examineTwice(t) })
	}
	t.Run("not there yet", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "locks")
		(&patient{urls: []string{"file:" + dir}, check: "file.folder", says: "does not exist yet"}).examineTwice(t, "--no-probe")
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it was made: %v", err)
		}
	})
	t.Run("memory", func(t *testing.T) { // which no other process can see
		(&patient{urls: []string{"memory:"}, code: exitUsage, says: "the memory store is for one process"}).examineTwice(t)
	})
}

// TestDoctorOfQuorums makes quorums of Redis ill in ten ways, and well in ten.
func TestDoctorOfQuorums(t *testing.T) {
	t.Parallel()
	nodes := servers.StartRedises(t, 5, "--appendonly", "yes", "--appendfsync", "always")
	forgetful := servers.StartRedises(t, 3)
	evicting := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	replica, down := servers.StartRedis(t), servers.StartRedises(t, 2)
	host, port, _ := strings.Cut(nodes[0].Addr, ":")
	replica.Do("REPLICAOF", host, port)
	for i := range down {
		down[i].Kill()
	}
	for _, node := range nodes {
		node.Do("ACL", "SETUSER", "blind", "on", ">word", "~*", "&*", "+@all", "-info")
		node.Do("ACL", "SETUSER", "elsewhere", "on", ">word", "~other:*", "&*", "+@all")
		node.Do("ACL", "SETUSER", "full", "on", ">word", "~*", "&*", "+@all")
	}
	of := func(suffix string, some ...*servers.Redis) (urls []string) {
		for _, node := range some {
			urls = append(urls, "redis://"+node.Addr+suffix)
		}
		return urls
	}
	as := func(user string, node *servers.Redis) string { return "redis://" + user + ":word@" + node.Addr }
	b, c, d, e := nodes[1], nodes[2], nodes[3], nodes[4]
	files := func(n int) (urls []string) {
		for range n {
			urls = append(urls, "file:"+folder(t, 0o700))
		}
		return urls
	}
	everysec := servers.StartRedises(t, 3, "--appendonly", "yes")
	for what, p := range map[string]patient{
		"two nodes":         {urls: of("", b, c), code: exitWarned, check: "quorum.size", says: "one --store more"},
		"four nodes":        {urls: of("", b, c, d, e), code: exitWarned, check: "quorum.size", says: "3 nodes survive as many failures"},
		"one node":          {urls: []string{quorumstore.URL(of("", b)...)}, code: exitWarned, check: "quorum.size", says: "1 node, which may not fail"},
		"a node down":       {urls: of("", b, c, down[0]), code: exitWarned, check: "quorum.majority", says: "not all nodes can be reached"},
		"two nodes down":    {urls: of("", b, down[0], down[1]), code: exitUnavailable, says: "no majority of the nodes can be reached"},
		"forgetful nodes":   {urls: of("", forgetful...), code: exitWarned, check: "redis.persistence", says: "appendonly is off"},
		"an evicting node":  {urls: of("", b, c, evicting), code: exitUnfit, check: "redis.eviction", says: "noeviction"},
		"a replica":         {urls: of("", b, c, replica), code: exitUnfit, check: "redis.role", says: "connect to its master"},
		"no rights":         {urls: []string{as("elsewhere", b), as("full", c), as("full", d)}, code: exitUnfit, check: "redis.rights", says: "~lock:*"},
		"a short guard":     {urls: of("?restart_guard=50ms", forgetful...), code: exitWarned, check: "redis.persistence", says: "restart_guard=30s"},
		"folders, even":     {urls: files(2), code: exitWarned, check: "quorum.size", says: "one --store more"},
		"three nodes":       {urls: of("", b, c, d)},
		"five nodes":        {urls: of("", b, c, d, e, everysec[0])},
		"a prefix":          {urls: of("?prefix=app:", b, c, d)},
		"no prefix":         {urls: of("?prefix=", b, c, d)},
		"a database":        {urls: of("/3", b, c, d)},
		"users":             {urls: []string{as("full", b), as("full", c), as("full", d)}},
		"a node unseen":     {urls: []string{as("full", b), as("full", c), as("blind", d)}, check: "redis.role", says: "cannot tell"},
		"each second":       {urls: of("", everysec...), check: "redis.persistence", says: "everysec"},
		"folders":           {urls: files(3)},
		"five folders":      {urls: files(5)},
		"folders and Redis": {urls: append(files(1), of("", b, c)...)},
		"one URL":           {urls: []string{quorumstore.URL(of("", b, c, d)...) + "&timeout=5s"}},
	} {
		if what != "a short guard" { // whose first examination starts the guard, and the second finds it over
			p.trace = keysOf(append(append([]*servers.Redis{}, nodes[1:]...), append(forgetful, evicting)...)...)
		}
		t.Run(what, func(t *testing.T) { p.examineTwice(t) })
	}
}
