package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Warnings queries the servers for settings under which they may forget locks, and describes each
// in a sentence, for people. None is an error: the locks work, with the risk described. It needs
// the command INFO.
func (s *Store) Warnings(ctx context.Context) ([]string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	masters, err := withDeadline(s, ctx, s.masters)
	if err != nil {
		return nil, s.wrapErr(err)
	}
	var all []string
	for _, master := range masters {
		info, err := withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) {
			return readInfo(ctx, master)
		})
		if err != nil {
			return nil, s.wrapErr(err)
		}
		all = append(all, s.warningsFor(info)...)
	}
	return all, nil
}

func readInfo(ctx context.Context, master redis.Cmdable) (map[string]string, error) {
	text, err := master.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

func (s *Store) warningsFor(info map[string]string) []string {
	var all []string
	add := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("server on port %s: ", info["tcp_port"])+fmt.Sprintf(format, args...))
	}
	if policy := info["maxmemory_policy"]; info["maxmemory"] != "0" && policy != "noeviction" {
		add("maxmemory-policy %s may evict locks while they are held: set it to noeviction", policy)
	}
	if info["role"] == "slave" {
		add("it is a replica, and takes no locks: connect to its master")
	}
	if s.options.RestartGuard == 0 && info["aof_enabled"] == "0" {
		add("it forgets locks when it is restarted: set appendonly to yes, or RestartGuard")
	}
	if s.options.MinReplicas == 0 && info["role"] == "master" && info["connected_slaves"] != "0" {
		add("a failover to one of its %s replicas may forget locks, also one that is planned: MinReplicas makes that less likely", info["connected_slaves"])
	}
	return all
}
