package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/redisstore"
)

// examineRedis reads INFO of each master, and CONFIG GET of when the append-only file reaches the
// disk. Whether the user may do what locks need, the probe shows.
func examineRedis(ctx context.Context, store *redisstore.Store, o Options) ([]Finding, error) {
	cluster, ok := store.Client().(*redis.ClusterClient)
	if !ok {
		return examineRedisServer(ctx, store, store.Client(), o)
	}
	var mu sync.Mutex
	var all list
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		findings, err := examineRedisServer(ctx, store, master, o)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range findings {
			f.Server = master.Options().Addr
			all = append(all, f)
		}
		return err
	})
	if err != nil {
		return all, err
	}
	text, err := cluster.ClusterInfo(ctx).Result()
	state := readLines(text)
	all.check("redis.slots", "all hash slots are served", err == nil && (state["cluster_state"] != "ok" || state["cluster_slots_ok"] != "16384"), Failure,
		fmt.Sprintf("%s of 16384 hash slots are served (cluster_state %s): the other locks cannot be taken", state["cluster_slots_ok"], state["cluster_state"]),
		"all hash slots served", "redis-cli --cluster fix")
	return all, nil
}

// readInfo reads INFO.
func readInfo(ctx context.Context, server redis.Cmdable) (map[string]string, error) {
	text, err := server.Info(ctx).Result()
	return readLines(text), err
}

func readLines(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

func examineRedisServer(ctx context.Context, store *redisstore.Store, server redis.UniversalClient, o Options) ([]Finding, error) {
	var all list
	info, err := readInfo(ctx, server)
	var refused redis.Error
	if errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "NOPERM ") {
		all.check("redis.version", "", true, Unknown, "cannot tell: "+err.Error(), "the right to run INFO", "ACL SETUSER with +info")
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	var major, minor int
	_, _ = fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor)
	all.check("redis.version", "Redis "+info["redis_version"], info["valkey_version"] == "" && (major < 6 || major == 6 && minor < 2), Failure,
		"Redis "+info["redis_version"]+" has not all commands that locks need", "Redis 6.2 or later, or Valkey", "upgrade it")
	all.check("redis.role", "it is a master", info["role"] == "slave", Failure, "it is a replica, and takes no locks", "a master",
		fmt.Sprintf("connect to its master, %s:%s, by Sentinel if it moves", info["master_host"], info["master_port"]))
	if info["role"] == "slave" {
		return all, nil
	}
	policy := info["maxmemory_policy"]
	all.check("redis.eviction", "no lock is evicted", info["maxmemory"] != "0" && info["maxmemory"] != "" && policy != "noeviction", Failure,
		fmt.Sprintf("maxmemory-policy %s may evict locks while they are held", policy), "maxmemory-policy noeviction",
		"redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE")
	clients, _ := strconv.Atoi(info["connected_clients"])
	most, _ := strconv.Atoi(info["maxclients"])
	all.check("redis.clients", "there is room for clients", most > 0 && most-clients < max(10, most/10), Warning,
		fmt.Sprintf("it has %d clients, and maxclients is %d: a process with locks has a few connections", clients, most), "room for clients",
		"a greater maxclients, or a plan with more connections")
	all = append(all, examinePersistence(ctx, store, server, info, o))
	replicas, _ := strconv.Atoi(info["connected_slaves"])
	switch least := store.Options().MinReplicas; {
	case replicas < least:
		all.check("redis.failover", "", true, Failure, fmt.Sprintf("it has %d replicas, and %d have to confirm each lock (MinReplicas)", replicas, least),
			fmt.Sprintf("%d replicas that are connected", least), "start them, or a smaller min_replicas")
	default:
		all.check("redis.failover", fmt.Sprintf("it has %d replicas, and %d confirm each lock", replicas, least), replicas > 0 && least == 0, Warning,
			fmt.Sprintf("a failover to one of its %d replicas may forget locks, also one that is planned", replicas),
			"locks that replicas confirm, which makes that less likely", "min_replicas=1 (MinReplicas)")
	}
	if client, ok := server.(*redis.Client); ok {
		options := client.Options()
		if conn, err := options.Dialer(ctx, options.Network, options.Addr); err == nil {
			_, encrypted := conn.(*tls.Conn)
			all.transport("redis.tls", conn, encrypted, "rediss:// in the URL, or tls=true for Sentinels and clusters")
			_ = conn.Close() // Nothing was written.
		}
	}
	return all, nil
}

// examinePersistence checks what a restart of the server does to locks.
func examinePersistence(ctx context.Context, store *redisstore.Store, server redis.UniversalClient, info map[string]string, o Options) Finding {
	const want = "locks that survive a restart, or a server that waits after it"
	f := Finding{Check: "redis.persistence", Severity: Warning, Want: want,
		Remedy: fmt.Sprintf("appendonly yes and appendfsync always in redis.conf; or restart_guard=%v in the URL (RestartGuard)", o.TTL)}
	guard := store.Options().RestartGuard
	sync, err := "", error(nil)
	if info["aof_enabled"] == "1" && guard == 0 {
		var values map[string]string
		values, err = server.ConfigGet(ctx, "appendfsync").Result()
		sync = values["appendfsync"]
	}
	switch {
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		f.Severity, f.Found, f.Remedy = Failure, "it cannot write its append-only file, and takes no changes", "room on its disk, and the log of the server"
	case guard >= o.TTL:
		f = Finding{Check: f.Check, Severity: OK, Found: fmt.Sprintf("after a restart it grants nothing for %v (RestartGuard)", guard)}
	case guard > 0:
		f.Found = fmt.Sprintf("RestartGuard is %v, and the TTL is %v: a lock may be granted again while it is held", guard, o.TTL)
	case info["aof_enabled"] != "1":
		f.Found = "it forgets locks when it is restarted (appendonly is off)"
	case err != nil || sync == "":
		f.Severity, f.Found, f.Remedy = Unknown, "appendonly is on; cannot tell appendfsync", "ACL SETUSER with +config|get"
	case sync == "always":
		f = Finding{Check: f.Check, Severity: OK, Found: "each change is on the disk before it is answered (appendfsync always)"}
	case sync == "everysec":
		f.Severity, f.Found = Note, "a power cut forgets the locks of up to two seconds (appendfsync everysec)"
	default:
		f.Found = fmt.Sprintf("a power cut forgets locks of the last half minute or so (appendfsync %s)", sync)
	}
	return f
}
