//go:build unix

package testbed

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A redisPair is a Redis with a replica, at one address, which leads to the master, as that of a
// load balancer does.
type redisPair struct {
	*servers.Redis // the master
	replica        *servers.Redis
	address        *faultproxy.Proxy // clients connect to the master through it
	replication    *faultproxy.Proxy // and the replica, through this one
	host           *servers.Host
}

// startRedisWithReplica starts a Redis as startRedis does. It forgets in another way: its replica,
// which lacks the newest writes, takes its place.
func (t *Testbed) startRedisWithReplica(ttl time.Duration) error {
	nodes := servers.StartRedises(&t.host, 2, "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
	p := &redisPair{
		host: &t.host, Redis: nodes[0], replica: nodes[1],
		address: faultproxy.Start(&t.host, nodes[0].Addr), replication: faultproxy.Start(&t.host, nodes[0].Addr),
	}
	p.replicate()
	t.Stores = []string{fmt.Sprintf("redis://%s?restart_guard=%v", p.address.Addr(), ttl)}
	t.addServer(p, func() { p.failover(ttl / 4) })
	t.Recovery = ttl
	return nil
}

// replicate has the replica follow the master, and returns when it has its data.
func (p *redisPair) replicate() {
	host, port, _ := net.SplitHostPort(p.replication.Addr()) // it is one
	p.replica.Do("REPLICAOF", host, port)
	storecheck.Eventually(p.host, "replica with data", func() bool {
		return strings.Contains(p.replica.Do("INFO", "replication"), "master_link_status:up")
	})
}

// failover kills the master and puts the replica in its place, which lacks the changes of the last
// time that lag has been. The master comes back as the replica.
func (p *redisPair) failover(lag time.Duration) {
	p.replication.Hold(faultproxy.Down)
	time.Sleep(lag)
	p.Kill()
	p.replication.Reset()
	p.replication.Pass(faultproxy.Down)
	p.replica.Do("REPLICAOF", "NO", "ONE")
	p.address.SetTarget(p.replica.Addr)
	p.replication.SetTarget(p.replica.Addr)
	p.Redis, p.replica = p.replica, p.Redis
	p.replica.Start()
	p.replicate()
}
