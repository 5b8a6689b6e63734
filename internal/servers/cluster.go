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

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// StartRedisCluster starts a cluster and returns when all its nodes agree that
// it is whole.
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
		first, last := i*slots/masters, (i+1)*slots/masters-1
		node.Do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
	}
	host, port, err := net.SplitHostPort(c.Masters[0].Addr)
	if err != nil {
		tb.Fatal(err)
	}
	for _, node := range c.nodes()[1:] {
		node.Do("CLUSTER", "MEET", host, port)
	}
	c.await(tb, "nodes that know each other", func(info string) bool {
		return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", 2*masters))
	})
	for i, replica := range c.Replicas {
		id := c.Masters[i].Do("CLUSTER", "MYID")
		await(tb, "replica of "+c.Masters[i].Addr, func() bool {
			_, err := askRedis(replica.Addr, "CLUSTER", "REPLICATE", id)
			return err == nil
		})
	}
	c.await(tb, "whole cluster", func(info string) bool {
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", masters))
	})
	for _, replica := range c.Replicas {
		awaitLink(tb, replica)
	}
	for _, node := range c.nodes() {
		await(tb, "full list of nodes at "+node.Addr, func() bool {
			list := node.Do("CLUSTER", "NODES")
			return strings.Count(list, " slave ")+strings.Count(list, ",slave ") == masters
		})
	}
	return c
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, node := range c.nodes() {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

func (c *RedisCluster) nodes() []*Redis {
	return append(append([]*Redis{}, c.Masters...), c.Replicas...)
}

func (c *RedisCluster) await(tb TB, what string, done func(info string) bool) {
	tb.Helper()
	for _, node := range c.nodes() {
		await(tb, what+" at "+node.Addr, func() bool { return done(node.Do("CLUSTER", "INFO")) })
	}
}

// awaitLink returns when a replica has what its master has.
func awaitLink(tb TB, replica *Redis) {
	tb.Helper()
	await(tb, "link of "+replica.Addr+" to its master", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
}
