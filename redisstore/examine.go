package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Examiner = (*Store)(nil)

// Examine implements [driver.Examiner]. It reads INFO of each master, CONFIG GET appendfsync if it
// has an append-only file, and CLUSTER INFO of a cluster.
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
		if isRefusal(err) {
			all = append(all, unknownFindings(err)...)
			continue
		}
		if err != nil {
			return all, s.wrapErr(err)
		}
		findings := s.examineServer(ctx, master, info, o.TTL)
		if s.cluster {
			findings = append(findings, s.examineSlots(ctx, master))
		}
		for i := range findings {
			findings[i].Server = serverOf(master, info)
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
	checkRole        = "redis.role"
	checkEviction    = "redis.eviction"
	checkPersistence = "redis.persistence"
	checkFailover    = "redis.failover"
	checkSlots       = "redis.slots"
)

// unknownFindings are those of a server that does not let the user run INFO.
func unknownFindings(err error) []driver.Finding {
	var all []driver.Finding
	for _, check := range []string{checkRole, checkEviction, checkPersistence, checkFailover} {
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
		return []driver.Finding{role}
	default:
		role.Severity, role.Found, role.Want = driver.SeverityUnknown, "cannot tell: INFO has no role", "a master"
	}
	return []driver.Finding{role, examineEviction(info), s.examinePersistence(ctx, master, info, ttl), s.examineFailover(info)}
}

func examineEviction(info map[string]string) driver.Finding {
	f := driver.Finding{Check: checkEviction, Severity: driver.SeverityOK}
	switch policy := info["maxmemory_policy"]; {
	case info["maxmemory"] == "":
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: INFO has no maxmemory", "maxmemory-policy noeviction"
	case info["maxmemory"] == "0":
		f.Found = "memory is not limited (maxmemory 0)"
	case policy == "noeviction":
		f.Found = "maxmemory-policy is noeviction"
	default:
		f.Severity, f.Found = driver.SeverityFailure, fmt.Sprintf("maxmemory-policy %s may evict locks while they are held", policy)
		f.Want, f.Remedy = "maxmemory-policy noeviction", "redis-cli CONFIG SET maxmemory-policy noeviction"
	}
	return f
}

// examinePersistence checks what a restart of the server does to locks.
func (s *Store) examinePersistence(ctx context.Context, master redis.UniversalClient, info map[string]string, ttl time.Duration) driver.Finding {
	guard := s.options.RestartGuard
	f := driver.Finding{Check: checkPersistence, Severity: driver.SeverityOK, Want: "locks that survive a restart, or a server that waits after it"}
	mend := fmt.Sprintf("redis-cli CONFIG SET appendonly yes and CONFIG SET appendfsync always, or restart_guard=%v (RestartGuard)", ttl)
	if s.cluster {
		mend, _, _ = strings.Cut(mend, ", or ")
	}
	switch {
	case guard >= ttl:
		f.Found, f.Want = fmt.Sprintf("after a restart it grants nothing for %v (RestartGuard)", guard), ""
	case guard > 0:
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("RestartGuard is %v, and the TTL is %v: a lock may be granted again while it is held", guard, ttl)
		f.Remedy = fmt.Sprintf("restart_guard=%v", ttl)
	case info["aof_enabled"] == "":
		f.Severity, f.Found = driver.SeverityUnknown, "cannot tell: INFO has no aof_enabled"
	case info["aof_enabled"] != "1":
		f.Severity, f.Found, f.Remedy = driver.SeverityWarning, "it forgets locks when it is restarted (appendonly is off)", mend
	default:
		return s.examineSync(ctx, master, f, mend)
	}
	return f
}

// examineSync checks when the append-only file reaches the disk.
func (s *Store) examineSync(ctx context.Context, master redis.UniversalClient, f driver.Finding, mend string) driver.Finding {
	values, err := withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) {
		return master.ConfigGet(ctx, "appendfsync").Result()
	})
	return judgeSync(values, err, f, mend)
}

// judgeSync returns f with what the answer to CONFIG GET appendfsync means.
func judgeSync(values map[string]string, err error, f driver.Finding, mend string) driver.Finding {
	switch sync := values["appendfsync"]; {
	case err != nil:
		f.Severity, f.Found, f.Remedy = driver.SeverityUnknown, "appendonly is on; cannot tell appendfsync: "+err.Error(), "ACL SETUSER with +config|get"
	case sync == "":
		f.Severity, f.Found = driver.SeverityUnknown, "appendonly is on; cannot tell appendfsync: CONFIG GET has none"
	case sync == "always":
		f.Found, f.Want = "each change is on the disk before it is answered (appendfsync always)", ""
	case sync == "everysec":
		f.Severity, f.Found, f.Remedy = driver.SeverityNote, "a power cut forgets the locks of up to two seconds (appendfsync everysec)", mend
	default:
		f.Severity, f.Found, f.Remedy = driver.SeverityWarning, fmt.Sprintf("a power cut forgets locks of the last half minute or so (appendfsync %s)", sync), mend
	}
	return f
}

func (s *Store) examineFailover(info map[string]string) driver.Finding {
	f := driver.Finding{Check: checkFailover, Severity: driver.SeverityOK}
	least, replicas := s.options.MinReplicas, info["connected_slaves"]
	n := 0
	_, err := fmt.Sscan(replicas, &n)
	switch {
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
		f.Want, f.Remedy = "all hash slots served", "redis-cli --cluster fix HOST:PORT"
	}
	return f
}
