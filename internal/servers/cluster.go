//go:build unix

package servers

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A RedisCluster is a Redis Cluster of three masters, each with a replica.
type RedisCluster struct {
	Masters  []*Redis
	Replicas []*Redis
}

// StartRedisCluster starts a cluster and returns when all its nodes report that it is complete.
func StartRedisCluster(tb testing.TB, args ...string) *RedisCluster {
	tb.Helper()
	const masters = 3
	options := append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}, args...)
	c := &RedisCluster{
		Masters:  StartRedises(tb, masters, options...),
		Replicas: StartRedises(tb, masters, options...),
	}
	create := []string{"--cluster", "create", "--cluster-replicas", "1", "--cluster-yes"}
	runTool(tb, nil, findProgram(tb, "redis-cli"), append(create, c.Addrs()...)...)
	for _, replica := range c.Replicas {
		waitReplicaLink(tb, replica)
	}
	for _, node := range c.allNodes() {
		storecheck.Eventually(tb, "whole cluster at "+node.Addr, func() bool {
			list := node.Do("CLUSTER", "NODES")
			isWhole := strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok")
			return isWhole && strings.Count(list, " slave ")+strings.Count(list, ",slave ") == masters
		})
	}
	return c
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, node := range c.allNodes() {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// BeginMove begins to move a hash slot from one master to another. From now on the first one serves
// the keys that it still has, and redirects clients for the others.
func (c *RedisCluster) BeginMove(slot int, from, to *Redis) {
	to.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "IMPORTING", from.Do("CLUSTER", "MYID"))
	from.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "MIGRATING", to.Do("CLUSTER", "MYID"))
}

// MoveKeys moves the keys of a slot that is being moved, one after the other.
func (c *RedisCluster) MoveKeys(slot int, from, to *Redis) {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		from.tb.Fatal(err)
	}
	for {
		keys := from.Do("CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "10")
		if keys == "" {
			return
		}
		for key := range strings.SplitSeq(keys, "\n") {
			from.Do("MIGRATE", host, port, key, "0", "5000")
		}
	}
}

// EndMove assigns a slot to the other master after its keys have been moved.
func (c *RedisCluster) EndMove(slot int, from, to *Redis) {
	id := to.Do("CLUSTER", "MYID")
	for _, node := range append([]*Redis{to, from}, c.Masters...) {
		node.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "NODE", id)
	}
}

func (c *RedisCluster) allNodes() []*Redis {
	return append(append([]*Redis{}, c.Masters...), c.Replicas...)
}

// waitReplicaLink returns when a replica is in sync with its master.
func waitReplicaLink(tb testing.TB, replica *Redis) {
	tb.Helper()
	storecheck.Eventually(tb, "link of "+replica.Addr+" to its master", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
}
