//go:build unix

package doctor_test

import (
	"context"
	"errors"
	neturl "net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// examine examines the store at a URL, and returns the worst finding of each check.
func examine(t *testing.T, url string) map[string]doctor.Finding {
	t.Helper()
	client, err := holdfast.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	findings, err := doctor.Examine(t.Context(), client.Store(), nil)
	if err != nil || len(findings) == 0 {
		t.Errorf("%s: %v, %v", url, findings, err)
	}
	return worstOf(t, findings)
}

func worstOf(t *testing.T, findings []doctor.Finding) map[string]doctor.Finding {
	t.Helper()
	worst := map[string]doctor.Finding{}
	for _, f := range findings {
		if (f.Want == "") != (f.Severity <= doctor.Note) && f.Severity != doctor.Note {
			t.Errorf("%+v: only what is not well has something to want", f)
		}
		if f.Severity > worst[f.Check].Severity {
			worst[f.Check] = f
		}
	}
	return worst
}

// mustBe fails the test unless exactly the checks named are above Note, with the severity given.
func mustBe(t *testing.T, what string, found map[string]doctor.Finding, ill map[string]doctor.Severity) {
	t.Helper()
	for check, f := range found {
		if want := ill[check]; f.Severity > doctor.Note && f.Severity != want || want != 0 && f.Severity != want {
			t.Errorf("%s: %v, want the severity %v", what, f, want)
		}
	}
	for check, severity := range ill {
		if found[check].Severity == 0 {
			t.Errorf("%s: no finding of %s, want the severity %v", what, check, severity)
		}
	}
}

// ill are checks that are not well.
type ill map[string]doctor.Severity

func TestRedis(t *testing.T) {
	t.Parallel()
	const durable = "--appendonly yes --appendfsync always"
	for _, tt := range []struct {
		name, args, query string
		ill               ill
	}{
		{"well", durable, "", nil},
		{"well behind a guard", "", "?restart_guard=30s", nil},
		{"a guard that is too short", "", "?restart_guard=1s", ill{"redis.persistence": doctor.Warning}},
		{"forgets", "", "", ill{"redis.persistence": doctor.Warning}},
		{"may lose half a minute", "--appendonly yes --appendfsync no", "", ill{"redis.persistence": doctor.Warning}},
		{"evicts", durable + " --maxmemory 100mb --maxmemory-policy allkeys-lru", "", ill{"redis.eviction": doctor.Failure}},
		{"does not evict", durable + " --maxmemory 100mb --maxmemory-policy noeviction", "", nil},
		{"full", durable + " --maxmemory 1 --maxmemory-policy noeviction", "", ill{"probe": doctor.Warning}},
		{"few connections", durable + " --maxclients 10", "", ill{"redis.clients": doctor.Warning}},
		{"too few replicas", durable, "?min_replicas=1", ill{"redis.failover": doctor.Failure, "probe": doctor.Warning}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t, strings.Fields(tt.args)...)
			found := examine(t, "redis://"+server.Addr+tt.query)
			if f := found["probe"]; strings.Contains(tt.query, "guard") && f.Severity == doctor.Warning { // The first use of a prefix waits.
				delete(found, "probe")
			}
			mustBe(t, tt.name, found, tt.ill)
		})
	}
}

// A replica is a failure, its master has a warning, and a user without rights is told of them.
func TestRedisReplicasAndRights(t *testing.T) {
	t.Parallel()
	master := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := servers.StartRedis(t, "--replicaof", host+" "+port)
	for strings.Contains(replica.Do("INFO", "replication"), "master_link_status:down") {
		time.Sleep(10 * time.Millisecond)
	}
	mustBe(t, "replica", examine(t, "redis://"+replica.Addr), ill{"redis.role": doctor.Failure, "probe": doctor.Failure})
	mustBe(t, "master", examine(t, "redis://"+master.Addr), ill{"redis.failover": doctor.Warning})
	master.Do("ACL", "SETUSER", "reader", "on", ">SecretWord", "~*", "&*", "+@read", "+info", "+hello", "+config|get")
	found := examine(t, "redis://reader:SecretWord@"+master.Addr)
	if f := found["probe"]; f.Severity != doctor.Failure || strings.Contains(f.String(), "SecretWord") {
		t.Errorf("a reader: %v", f)
	}
	for what, rights := range map[string][]string{"probe": {"-eval", "-evalsha"}, "notices": {"-publish"}} {
		master.Do(append([]string{"ACL", "SETUSER", "narrow", "on", ">SecretWord", "~*", "&*", "+@all"}, rights...)...)
		if f := examine(t, "redis://narrow:SecretWord@"+master.Addr)[what]; f.Severity < doctor.Warning {
			t.Errorf("a service with %v: %v", rights, f)
		}
		master.Do("ACL", "DELUSER", "narrow")
	}
	master.Do("ACL", "SETUSER", "writer", "on", ">SecretWord", "~*", "&*", "+@all", "-info")
	if f := examine(t, "redis://writer:SecretWord@"+master.Addr)["redis.version"]; f.Severity != doctor.Unknown {
		t.Errorf("a user that may not run INFO: %v", f)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	url := server.URL("postgres")
	execute := func(text string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	missing := examine(t, url)
	mustBe(t, "no table", missing, ill{"postgres.schema": doctor.Failure, "probe": doctor.Failure})
	if f, ok := missing["postgres.unlogged"]; ok {
		t.Errorf("of a table that is not there: %v", f)
	}
	client, err := holdfast.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Store().(interface{ Migrate(context.Context) error }).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "well", examine(t, url), nil)
	for rec, err := range client.List(t.Context(), "holdfast-doctor/") {
		t.Errorf("an examination has left %v, %v", rec, err)
	}
	for _, tt := range []struct {
		name, make, mend string
		ill              ill
	}{
		{"asynchronous commits", "ALTER ROLE postgres SET synchronous_commit = off", "ALTER ROLE postgres RESET synchronous_commit", ill{"postgres.synchronous-commit": doctor.Warning}},
		{"read-only", "ALTER ROLE postgres SET default_transaction_read_only = on", "SET default_transaction_read_only = off; ALTER ROLE postgres RESET default_transaction_read_only",
			ill{"postgres.writable": doctor.Failure, "probe": doctor.Failure}},
		{"unlogged", "ALTER TABLE holdfast.locks SET UNLOGGED", "ALTER TABLE holdfast.locks SET LOGGED", ill{"postgres.unlogged": doctor.Warning}},
		{"creators", "GRANT CREATE ON SCHEMA holdfast TO PUBLIC", "REVOKE CREATE ON SCHEMA holdfast FROM PUBLIC", ill{"postgres.creators": doctor.Warning}},
		{"trigger", "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'| CREATE TRIGGER tr BEFORE UPDATE ON holdfast.locks FOR EACH ROW EXECUTE FUNCTION f()",
			"DROP TRIGGER tr ON holdfast.locks", ill{"postgres.row-security": doctor.Failure}},
		{"fsync", "ALTER SYSTEM SET full_page_writes = off", "ALTER SYSTEM RESET full_page_writes", ill{"postgres.fsync": doctor.Warning}},
	} {
		for _, text := range strings.Split(tt.make, "| ") {
			execute(text)
		}
		execute("SELECT pg_reload_conf()")
		for began := time.Now(); strings.HasPrefix(tt.make, "ALTER SYSTEM") && examine(t, url)["postgres.fsync"].Severity == doctor.OK && time.Since(began) < 10*time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
		mustBe(t, tt.name, examine(t, url), tt.ill)
		if strings.HasPrefix(tt.mend, "SET ") {
			_, text, _ := strings.Cut(tt.mend, "; ")
			execute("BEGIN READ WRITE; " + text + "; COMMIT")
			continue
		}
		execute(tt.mend)
	}
	execute("CREATE ROLE stranger LOGIN; SELECT pg_reload_conf()")
	mustBe(t, "no right to the schema", examine(t, strings.Replace(url, "postgres@", "stranger@", 1)), ill{"probe": doctor.Failure})
	standby := servers.StartPostgresStandby(t, server, "behind")
	mustBe(t, "standby", examine(t, standby.URL("postgres")), ill{"postgres.writable": doctor.Failure, "probe": doctor.Failure})
	if f := examine(t, url)["postgres.standbys"]; f.Severity != doctor.Warning {
		t.Errorf("an asynchronous standby: %v", f)
	}
	pooler := servers.StartPgBouncer(t, server)
	if f := examine(t, pooler.URL("postgres"))["postgres.pooler"]; f.Severity != doctor.Warning {
		t.Errorf("behind a pooler: %v", f)
	}
	around := pooler.URL("postgres") + "&listen_url=" + neturl.QueryEscape(url)
	if f := examine(t, around)["postgres.pooler"]; f.Severity != doctor.OK {
		t.Errorf("behind a pooler, with a way around it: %v", f)
	}
}

func TestAdvisory(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	url := strings.Replace(server.URL("postgres"), "postgres:", "postgres+advisory:", 1)
	mustBe(t, "well", examine(t, url), nil)
	if f := examine(t, url)["advisory.tokens"]; f.Severity != doctor.Note {
		t.Errorf("without tokens: %v", f)
	}
	mustBe(t, "no sequence", examine(t, url+"&tokens=missing"), ill{"probe": doctor.Failure})
	standby := servers.StartPostgresStandby(t, server, "behind")
	mustBe(t, "standby", examine(t, strings.Replace(standby.URL("postgres"), "postgres:", "postgres+advisory:", 1)), ill{"probe": doctor.Failure})
	pooler := servers.StartPgBouncer(t, server)
	mustBe(t, "pooler", examine(t, strings.Replace(pooler.URL("postgres"), "postgres:", "postgres+advisory:", 1)), ill{"probe": doctor.Failure})
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	var urls []string
	all := servers.StartRedises(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	for _, server := range all {
		urls = append(urls, "redis://"+server.Addr)
	}
	// On a busy machine a node may take longer than half a second.
	quorum := func(urls ...string) string { return quorumstore.URL(urls...) + "&timeout=2500ms" }
	mustBe(t, "well", examine(t, quorum(urls...)), nil)
	mustBe(t, "two nodes", examine(t, quorum(urls[:2]...)), ill{"quorum.size": doctor.Warning})
	same := "redis://localhost:" + urls[0][strings.LastIndex(urls[0], ":")+1:]
	mustBe(t, "one server twice", examine(t, quorum(urls[0], urls[1], same)), ill{"quorum.servers": doctor.Failure})
	all[2].Kill()
	mustBe(t, "a minority is down", examine(t, quorum(urls...)), ill{"quorum.majority": doctor.Warning})
}

// A store that breaks a promise is found by the probe, whatever its kind, and an outage is an
// error.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		findings, err := doctor.Examine(t.Context(), memstore.New(), nil)
		if err != nil {
			t.Error(err)
		}
		mustBe(t, "memory", worstOf(t, findings), nil)
		twice := faultstore.Wrap(memstore.New()) // It grants a name that is held.
		twice.Bend(faultstore.Bent(func(res *driver.Result) {
			if !res.Granted {
				res.Granted, res.Token = true, res.Held.Token+1
			}
		}))
		findings, _ = doctor.Examine(t.Context(), twice, nil)
		mustBe(t, "a lock that is granted twice", worstOf(t, findings), ill{"probe": doctor.Failure})
		slow := faultstore.Wrap(memstore.New())
		slow.Set(faultstore.Lookup, func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(2 * time.Second)
			apply()
			return nil
		})
		findings, _ = doctor.Examine(t.Context(), slow, &doctor.Options{TTL: 3 * time.Second})
		if f := worstOf(t, findings)["latency"]; f.Severity != doctor.Failure {
			t.Errorf("a slow store: %v", f)
		}
		closed := memstore.New()
		_ = closed.Close()
		if _, err := doctor.Examine(t.Context(), closed, nil); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("a store that cannot be reached: %v", err)
		}
		if _, err := doctor.Examine(t.Context(), memstore.New(), &doctor.Options{TTL: time.Nanosecond}); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a TTL of 1 ns: %v", err)
		}
	})
}
