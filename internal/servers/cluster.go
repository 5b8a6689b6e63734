//go:build unix

package servers

import (
	"fmt"
	"net"
	"strings"
)

// A RedisCluster is a Redis Cluster of three masters, each with a replica.
type RedisCluster struct {
	Masters  []*Redis
	Replicas []*Redis
}

// hashSlots is the number of hash slots of every Redis Cluster.
const hashSlots = 16384

// StartRedisCluster starts a cluster and returns when all its nodes report that it is
// complete.
func StartRedisCluster(tb TB, args ...string) *RedisCluster {
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
	for i, node := range c.Masters {
		first, last := i*hashSlots/masters, (i+1)*hashSlots/masters-1
		node.Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
	}
	host, port, err := net.SplitHostPort(c.Masters[0].Addr)
	if err != nil {
		tb.Fatal(err)
	}
	for _, node := range c.allNodes()[1:] {
		node.Do("CLUSTER", "MEET", host, port)
	}
	c.waitAllNodes(tb, "nodes that know each other", func(info string) bool {
		return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", 2*masters))
	})
	for i, replica := range c.Replicas {
		id := c.Masters[i].Do("CLUSTER", "MYID")
		waitUntil(tb, "replica of "+c.Masters[i].Addr, func() bool {
			_, err := sendCommand(replica.Addr, "CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	c.waitAllNodes(tb, "whole cluster", func(info string) bool {
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", masters))
	})
	for _, replica := range c.Replicas {
		waitReplicaLink(tb, replica)
	}
	for _, node := range c.allNodes() {
		waitUntil(tb, "full list of nodes at "+node.Addr, func() bool {
			list := node.Do("CLUSTER", "NODES")
			return strings.Count(list, " slave ")+strings.Count(list, ",slave ") == masters
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

// BeginMove begins to move a hash slot from one master to another. From now on the first
// one serves the keys that it still has, and redirects clients for the others.
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

func (c *RedisCluster) waitAllNodes(tb TB, what string, done func(info string) bool) {
	tb.Helper()
	for _, node := range c.allNodes() {
		waitUntil(tb, what+" at "+node.Addr, func() bool { return done(node.Do("CLUSTER", "INFO")) })
	}
}

// waitReplicaLink returns when a replica is in sync with its master.
func waitReplicaLink(tb TB, replica *Redis) {
	tb.Helper()
	waitUntil(tb, "link of "+replica.Addr+" to its master", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
}
