package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
)

var _ driver.Examiner = (*Store)(nil)

// Examine implements [driver.Examiner]. It reads INFO of each master, CONFIG GET of the settings by
// which it refuses or forgets changes, and CLUSTER INFO of a cluster. It tries the rights of the
// user with a script that the server does not let write, and makes a connection to see where that
// goes.
func (s *Store) Examine(ctx context.Context, o driver.Examination) ([]driver.Finding, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	masters, err := withDeadline(s, ctx, s.masters)
	if err != nil {
		return nil, s.wrapErr(err)
	}
	var all []driver.Finding
	for _, master := range masters {
		info, err := withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) { return readInfo(ctx, master) })
		var findings []driver.Finding
		if isRefusal(err) {
			findings = unknownFindings(err)
		} else if err != nil {
			return all, s.wrapErr(err)
		} else {
			findings = s.examineServer(ctx, master, info, o.TTL)
		}
		findings = append(findings, examineTransport(ctx, master))
		if info["role"] != "slave" {
			rights, err := s.examineRights(ctx, master)
			if err != nil {
				return all, err
			}
			findings = append(findings, rights)
		}
		if s.cluster {
			findings = append(findings, s.examineSlots(ctx, master))
		}
		cli := cliOf(master, info)
		command := strings.NewReplacer("redis-cli CONFIG", cli+" CONFIG", "redis-cli ACL", cli+" ACL")
		for i := range findings {
			findings[i].Server = serverOf(master, info)
			findings[i].Remedy = command.Replace(findings[i].Remedy)
		}
		all = append(all, findings...)
	}
	return all, nil
}

// Forget implements [driver.Examiner]. It deletes what the queue of a name leaves for a minute.
func (s *Store) Forget(ctx context.Context, name string) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	lock := s.lockKey(name)
	base := strings.TrimSuffix(s.counterKey(s.hashTagOf(lock)), "counter")
	_, err := withDeadline(s, ctx, func(ctx context.Context) (int64, error) {
		return s.client.Del(ctx, base+"queue\x1f"+lock, base+"places\x1f"+lock, base+"interests\x1f"+lock).Result()
	})
	return s.wrapErr(err)
}

// serverOf names a server. The address of a client that finds it by Sentinels is not known.
func serverOf(master redis.UniversalClient, info map[string]string) string {
	client, ok := master.(*redis.Client)
	if ok && client.Options().Addr != sentinelAddr {
		return client.Options().Addr
	}
	return net.JoinHostPort("", info["tcp_port"])
}

// cliOf returns redis-cli with the address of a server. That of one behind Sentinels is its port.
func cliOf(master redis.UniversalClient, info map[string]string) string {
	host, port := "HOST", info["tcp_port"]
	secure := ""
	if client, ok := master.(*redis.Client); ok {
		o := client.Options()
		if o.Network == "unix" {
			return "redis-cli -s " + o.Addr
		}
		if h, p, err := net.SplitHostPort(o.Addr); err == nil && o.Addr != sentinelAddr {
			host, port = h, p
		}
		if o.TLSConfig != nil {
			secure = " --tls"
		}
	}
	return fmt.Sprintf("redis-cli -h %s -p %s%s", host, port, secure)
}

// isRefusal reports whether the server is up, and does not let the user run a command, or does not
// know it.
func isRefusal(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	return strings.HasPrefix(text, "noperm ") || strings.HasPrefix(text, "err unknown command")
}

func readInfo(ctx context.Context, master redis.Cmdable) (map[string]string, error) {
	text, err := master.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	return readLines(text), nil
}

// readLines reads the format of INFO.
func readLines(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

// The checks of a server.
const (
	checkVersion     = "redis.version"
	checkTLS         = "redis.tls"
	checkRights      = "redis.rights"
	checkRole        = "redis.role"
	checkEviction    = "redis.eviction"
	checkPersistence = "redis.persistence"
	checkFailover    = "redis.failover"
	checkSlots       = "redis.slots"
)

// unknownFindings are those of a server that does not let the user run INFO.
func unknownFindings(err error) []driver.Finding {
	var all []driver.Finding
	for _, check := range []string{checkVersion, checkRole, checkEviction, checkPersistence, checkFailover} {
		all = append(all, driver.Finding{Check: check, Severity: driver.SeverityUnknown,
			Found: "cannot tell: " + err.Error(), Want: "the right to run INFO", Remedy: "ACL SETUSER with +info"})
	}
	return all
}

func (s *Store) examineServer(ctx context.Context, master redis.UniversalClient, info map[string]string, ttl time.Duration) []driver.Finding {
	role := driver.Finding{Check: checkRole, Severity: driver.SeverityOK, Found: "it is a master"}
	switch info["role"] {
	case "master":
	case "slave":
		role.Severity, role.Found, role.Want = driver.SeverityFailure, "it is a replica, and takes no locks", "a master"
		role.Remedy = fmt.Sprintf("connect to its master, %s:%s, by Sentinel if it moves", info["master_host"], info["master_port"])
		return []driver.Finding{examineVersion(info), role}
	default:
		role.Severity, role.Found, role.Want = driver.SeverityUnknown, "cannot tell: INFO has no role", "a master"
	}
	return []driver.Finding{examineVersion(info), role, examineEviction(info), s.examinePersistence(ctx, master, info, ttl), s.examineFailover(ctx, master, info)}
}

// examineVersion checks that the server is not older than what the store is made for: Redis 6.2, or
// any Valkey.
func examineVersion(info map[string]string) driver.Finding {
	f := driver.Finding{Check: checkVersion, Severity: driver.SeverityOK, Found: "Redis " + info["redis_version"]}
	if version := info["valkey_version"]; version != "" {
		f.Found = "Valkey " + version
		return f
	}
	var major, minor int
	if n, _ := fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor); n < 2 {
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: INFO has no redis_version", "Redis 6.2 or later"
	} else if major < 6 || major == 6 && minor < 2 {
		f.Severity, f.Found = driver.SeverityFailure, f.Found+" has not all commands that locks need"
		f.Want, f.Remedy = "Redis 6.2 or later, or Valkey", "upgrade it"
	}
	return f
}

// examineTransport makes a connection as the client does, and checks where it goes.
func examineTransport(ctx context.Context, master redis.UniversalClient) driver.Finding {
	f := driver.Finding{Check: checkTLS, Severity: driver.SeverityUnknown, Found: "cannot tell: the client does not show how it dials", Want: "TLS, if the connection leaves this host"}
	client, ok := master.(*redis.Client)
	if !ok {
		return f
	}
	o := client.Options()
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		f.Found = "cannot tell: " + err.Error()
		return f
	}
	defer conn.Close()
	return transport.Examine(checkTLS, conn.LocalAddr(), conn.RemoteAddr(), transport.IsEncrypted(conn), "rediss:// in the URL, or tls=true for Sentinels and clusters")
}

func examineEviction(info map[string]string) driver.Finding {
	f := driver.Finding{Check: checkEviction, Severity: driver.SeverityOK}
	switch policy := info["maxmemory_policy"]; {
	case info["maxmemory"] == "":
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: INFO has no maxmemory", "maxmemory-policy noeviction"
	case info["maxmemory"] == "0":
		f.Found = "memory is not limited (maxmemory 0)"
	case policy == "noeviction" && infoNumber(info, "used_memory")-infoNumber(info, "mem_not_counted_for_evict") > infoNumber(info, "maxmemory"):
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("its memory is full (used_memory %s, maxmemory %s), and it takes no changes", info["used_memory"], info["maxmemory"])
		f.Want, f.Remedy = "room in its memory", "a greater maxmemory, or fewer keys of other programs"
	case policy == "noeviction":
		f.Found = "maxmemory-policy is noeviction"
	default:
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("maxmemory-policy %s may evict locks while they are held", policy)
		f.Want, f.Remedy = "maxmemory-policy noeviction", "redis-cli CONFIG SET maxmemory-policy noeviction"+lasting(info, "maxmemory-policy noeviction")
	}
	return f
}

// infoNumber returns a number of INFO, 0 if there is none.
func infoNumber(info map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(info[name], 10, 64)
	return n
}

// lasting returns how a command goes on that makes a setting outlast a restart, with a comment for
// a shell: CONFIG REWRITE fails without a file.
func lasting(info map[string]string, setting string) string {
	if info["config_file"] == "" {
		return "  # and " + setting + " in a redis.conf with which the server is started: it has none"
	}
	return " && redis-cli CONFIG REWRITE  # in " + info["config_file"]
}

// setting returns a setting of a server.
func (s *Store) setting(ctx context.Context, master redis.UniversalClient, name string) (string, error) {
	values, err := withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) { return master.ConfigGet(ctx, name).Result() })
	return values[name], err
}

// examinePersistence checks what a restart of the server does to locks.
func (s *Store) examinePersistence(ctx context.Context, master redis.UniversalClient, info map[string]string, ttl time.Duration) driver.Finding {
	guard := s.options.RestartGuard
	f := driver.Finding{Check: checkPersistence, Severity: driver.SeverityOK, Want: "locks that survive a restart, or a server that waits after it"}
	mend := fmt.Sprintf("redis-cli CONFIG SET appendonly yes && redis-cli CONFIG SET appendfsync always%s; or restart_guard=%v in the URL (RestartGuard)", lasting(info, "both"), ttl)
	if s.cluster {
		mend, _, _ = strings.Cut(mend, "; or ")
	}
	if info["rdb_last_bgsave_status"] == "err" {
		stop, err := s.setting(ctx, master, "stop-writes-on-bgsave-error")
		save, saveErr := s.setting(ctx, master, "save")
		f.Remedy = "room on its disk, and the log of the server"
		if err := errors.Join(err, saveErr); err != nil {
			f.Severity, f.Found = driver.SeverityUnknown, "its last snapshot failed; cannot tell whether it takes changes (stop-writes-on-bgsave-error): "+err.Error()
			return f
		}
		if stop != "no" && save != "" {
			f.Severity, f.Found = driver.SeverityFailure, "its last snapshot failed, and it takes no changes (stop-writes-on-bgsave-error)"
			return f
		}
		f.Remedy = ""
	}
	switch {
	case guard >= ttl:
		f.Found, f.Want = fmt.Sprintf("after a restart it grants nothing for %v (RestartGuard)", guard), ""
	case guard > 0:
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("RestartGuard is %v, and the TTL is %v: a lock may be granted again while it is held", guard, ttl)
		f.Remedy = fmt.Sprintf("restart_guard=%v in the URL", ttl)
	case info["aof_enabled"] == "":
		f.Severity, f.Found = driver.SeverityUnknown, "cannot tell: INFO has no aof_enabled"
	case info["aof_enabled"] != "1":
		f.Severity, f.Found, f.Remedy = driver.SeverityWarning, "it forgets locks when it is restarted (appendonly is off)", mend
	case info["aof_last_write_status"] == "err":
		f.Severity, f.Found, f.Remedy = driver.SeverityFailure, "it cannot write its append-only file, and takes no changes", "room on its disk, and the log of the server"
	default:
		return s.examineSync(ctx, master, info, f, mend)
	}
	return f
}

// examineSync checks when the append-only file reaches the disk, and whether that setting outlasts
// a restart.
func (s *Store) examineSync(ctx context.Context, master redis.UniversalClient, info map[string]string, f driver.Finding, mend string) driver.Finding {
	values, err := withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) {
		return master.ConfigGet(ctx, "*appendfsync*").Result()
	})
	f = judgeSync(values, err, f, mend)
	if f.Severity != driver.SeverityOK && f.Severity != driver.SeverityNote {
		return f
	}
	calls, err := withDeadline(s, ctx, func(ctx context.Context) (string, error) { return master.Info(ctx, "commandstats").Result() })
	if err != nil {
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell whether appendonly outlasts a restart: "+err.Error(), "the right to run INFO commandstats"
		return f
	}
	return judgeLasting(info, readLines(calls), f, mend)
}

// judgeLasting returns f, or a finding that the settings may end with the next restart: CONFIG SET
// changes them in memory alone. To switch the file on at run time writes it anew, which
// aof_rewrites counts. It does not show appendfsync always, which may be set alone; everysec is
// what a server has by itself. The statistics do not show which settings were set, nor whether
// before CONFIG REWRITE or after; since CONFIG RESETSTAT, nothing; before Redis 7, not even which
// CONFIG it was.
func judgeLasting(info, calls map[string]string, f driver.Finding, mend string) driver.Finding {
	_, set := calls["cmdstat_config|set"]
	_, rewritten := calls["cmdstat_config|rewrite"]
	_, reset := calls["cmdstat_config|resetstat"]
	_, config := calls["cmdstat_config"]
	file := info["config_file"]
	switch {
	case !set && !reset && !config, info["aof_rewrites"] == "0" && !reset && f.Severity == driver.SeverityNote:
		return f
	case set && (file == "" || !rewritten) && info["aof_rewrites"] == "0" && !reset:
		f.Severity, f.Found = driver.SeverityUnknown, "cannot tell whether appendfsync outlasts a restart: CONFIG SET has changed settings, and if it is one, and in no file, it ends with the next restart"
	case set && (file == "" || !rewritten):
		f.Severity, f.Found = driver.SeverityWarning, "CONFIG SET has changed settings: if appendonly or appendfsync is one, and in no file, it ends with the next restart"
	default:
		f.Severity = driver.SeverityNote
		f.Found += "; cannot tell whether a later CONFIG SET has set that, which ends with the next restart"
	}
	f.Want = "locks that survive a restart, or a server that waits after it"
	f.Remedy = "redis-cli CONFIG REWRITE  # after the last CONFIG SET"
	if file == "" {
		f.Remedy = "appendonly yes and appendfsync always in a redis.conf with which the server is started"
	}
	if _, guard, ok := strings.Cut(mend, "; or "); ok {
		f.Remedy += "; or " + guard
	}
	return f
}

// judgeSync returns f with what the answer to CONFIG GET *appendfsync* means.
func judgeSync(values map[string]string, err error, f driver.Finding, mend string) driver.Finding {
	switch sync := values["appendfsync"]; {
	case err != nil:
		f.Severity, f.Found, f.Remedy = driver.SeverityUnknown, "appendonly is on; cannot tell appendfsync: "+err.Error(), "ACL SETUSER with +config|get"
	case sync == "":
		f.Severity, f.Found = driver.SeverityUnknown, "appendonly is on; cannot tell appendfsync: CONFIG GET has none"
	case values["no-appendfsync-on-rewrite"] == "yes" && sync != "no":
		f.Severity, f.Found = driver.SeverityWarning, "while it rewrites its append-only file, a power cut forgets the locks of half a minute or so (no-appendfsync-on-rewrite yes)"
		f.Remedy = "redis-cli CONFIG SET no-appendfsync-on-rewrite no && redis-cli CONFIG REWRITE  # in its file"
		if _, guard, ok := strings.Cut(mend, "; or "); ok {
			f.Remedy += "; or " + guard
		}
	case sync == "always":
		f.Found, f.Want = "each change is on the disk before it is answered (appendfsync always)", ""
	case sync == "everysec":
		f.Severity, f.Found, f.Remedy = driver.SeverityNote, "a power cut forgets the locks of up to two seconds (appendfsync everysec)", mend
	default:
		f.Severity, f.Found, f.Remedy = driver.SeverityWarning, fmt.Sprintf("a power cut forgets locks of the last half minute or so (appendfsync %s)", sync), mend
	}
	return f
}

// examineFailover checks the replicas. How many the server itself wants is not known if the user
// may not run CONFIG GET; INFO has min_slaves_good_slaves if it wants any.
func (s *Store) examineFailover(ctx context.Context, master redis.UniversalClient, info map[string]string) driver.Finding {
	f := driver.Finding{Check: checkFailover, Severity: driver.SeverityOK}
	least, replicas := s.options.MinReplicas, info["connected_slaves"]
	n := 0
	_, err := fmt.Sscan(replicas, &n)
	wanted, good := "1", info["min_slaves_good_slaves"]
	if good != "" {
		if value, err := s.setting(ctx, master, "min-replicas-to-write"); err == nil {
			wanted = value
		}
	}
	w, _ := strconv.ParseInt(wanted, 10, 64)
	switch {
	case good != "" && infoNumber(info, "min_slaves_good_slaves") < w:
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("it takes no changes: %s replicas are in touch with it, want %s (min-replicas-to-write)", good, wanted)
		f.Want, f.Remedy = wanted+" replicas that are connected", "start them, or a smaller min-replicas-to-write"
	case err != nil:
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: INFO has no connected_slaves", "MinReplicas if it has replicas"
	case n < least:
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("it has %d replicas, and grants nothing before it has %d (MinReplicas)", n, least)
		f.Want, f.Remedy = fmt.Sprintf("%d replicas that are connected", least), "start them, or a smaller min_replicas"
	case least > 0:
		f.Found = fmt.Sprintf("%d of its %d replicas confirm each lock (MinReplicas)", least, n)
	case n > 0:
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("a failover to one of its %d replicas may forget locks, also one that is planned", n)
		f.Want, f.Remedy = "locks that replicas confirm, which makes that less likely", "min_replicas=1 (MinReplicas)"
	default:
		f.Found = "it has no replicas"
	}
	return f
}

// examineSlots checks that every lock has a server.
func (s *Store) examineSlots(ctx context.Context, master redis.UniversalClient) driver.Finding {
	f := driver.Finding{Check: checkSlots, Severity: driver.SeverityOK}
	text, err := withDeadline(s, ctx, func(ctx context.Context) (string, error) { return master.ClusterInfo(ctx).Result() })
	info := readLines(text)
	switch state, served := info["cluster_state"], info["cluster_slots_ok"]; {
	case err != nil:
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), "the right to run CLUSTER INFO"
	case state == "ok" && served == fmt.Sprint(hashSlots):
		f.Found = "all hash slots are served"
	default:
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("%s of %d hash slots are served (cluster_state %s): the other locks cannot be taken", served, hashSlots, state)
		f.Want, f.Remedy = "all hash slots served", "redis-cli --cluster fix "+serverOf(master, nil)
	}
	return f
}
