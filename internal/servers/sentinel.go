//go:build unix

package servers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// A RedisSentinel is a master with two replicas, watched by three Sentinels.
type RedisSentinel struct {
	Master    string   // the name under which the Sentinels know the master
	Nodes     []*Redis // the first is the master at the start
	Sentinels []string // the addresses of the Sentinels
	tb        testing.TB
}

// StartRedisSentinel starts a set that fails over within a few seconds. It returns when the
// Sentinels have discovered each other and the replicas.
func StartRedisSentinel(tb testing.TB, args ...string) *RedisSentinel {
	tb.Helper()
	options := append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	set := &RedisSentinel{Master: "main", Nodes: StartRedises(tb, 3, options...), tb: tb}
	host, port, err := net.SplitHostPort(set.Nodes[0].Addr)
	if err != nil {
		tb.Fatal(err)
	}
	for _, replica := range set.Nodes[1:] {
		replica.Do("REPLICAOF", host, port)
		waitReplicaLink(tb, replica)
	}
	for range 3 {
		set.Sentinels = append(set.Sentinels, startSentinel(tb, set.Master, host, port))
	}
	for _, addr := range set.Sentinels {
		storecheck.Eventually(tb, "Sentinel that knows all others", func() bool {
			reply, err := sendCommand(addr, "INFO", "sentinel")
			return err == nil && strings.Contains(reply, "slaves=2,sentinels=3")
		})
	}
	return set
}

// MasterAddr returns the address of the current master, as the first Sentinel reports it.
func (s *RedisSentinel) MasterAddr() string {
	s.tb.Helper()
	reply, err := sendCommand(s.Sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Master)
	if err != nil {
		s.tb.Fatalf("ask Sentinel: %v", err)
	}
	host, port, _ := strings.Cut(reply, "\n")
	return net.JoinHostPort(host, port)
}

// Failover has the Sentinels make a replica the master, as an operator does before maintenance. It
// returns before that has happened.
func (s *RedisSentinel) Failover() {
	s.tb.Helper()
	if _, err := sendCommand(s.Sentinels[0], "SENTINEL", "FAILOVER", s.Master); err != nil {
		s.tb.Fatalf("SENTINEL FAILOVER: %v", err)
	}
}

// AwaitFailover returns when another node than old is the master.
func (s *RedisSentinel) AwaitFailover(old string) {
	s.tb.Helper()
	storecheck.Eventually(s.tb, "failover", func() bool {
		now := s.MasterAddr()
		if now == old {
			return false
		}
		reply, err := sendCommand(now, "ROLE")
		return err == nil && strings.HasPrefix(reply, "master")
	})
}

func startSentinel(tb testing.TB, name, host, port string) string {
	tb.Helper()
	dir, own := tb.TempDir(), freePort(tb)
	config := filepath.Join(dir, "sentinel.conf") // Sentinel writes to it.
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nprotected-mode no\ndir %s\n"+
		"sentinel monitor %[3]s %[4]s %[5]s 2\nsentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 10000\n",
		own, dir, name, host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", own)
	runRedis(tb, addr, dir, config, "--sentinel")
	return addr
}
