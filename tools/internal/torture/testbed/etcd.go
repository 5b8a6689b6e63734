//go:build unix

package testbed

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/tools/internal/torture"
)

// startEtcd starts a cluster of three members. It needs no client of etcd: a program that links the
// store opens it.
func (t *Testbed) startEtcd(ttl time.Duration) error {
	members := servers.StartEtcdCluster(&t.host, 3)
	for _, m := range members {
		t.addServer(m, map[torture.Fault]func(){
			torture.MajorityPause:   m.Pause,
			torture.MajorityRestart: m.Restart,
			torture.Compaction:      m.Compact,
			torture.NoSpace: func() {
				m.RaiseNoSpace()
				time.Sleep(ttl)
				m.EndNoSpace()
			},
		})
	}
	t.Leader = func() int { return max(0, slices.IndexFunc(members, (*servers.Etcd).Leads)) }
	t.Stores = []string{"etcd://" + strings.Join(servers.EtcdAddrs(members), ",")}
	t.Setup = fmt.Sprintf("3 x %s", shortVersion(strings.SplitN(members[0].Version(), "\n", 2)[0], "Version: "))
	return nil
}
