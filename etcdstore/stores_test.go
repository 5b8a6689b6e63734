//go:build unix

package etcdstore

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// storeOfOne returns a cluster of one member, for the tests of all stores.
func storeOfOne(t *testing.T) *storetest.Store {
	t.Helper()
	t.Parallel()
	addrs := servers.EtcdAddrs(servers.StartEtcdCluster(t, 1))
	return storetest.New("etcd", addrs, func(addrs []string) string { return "etcd://" + strings.Join(addrs, ",") })
}

func TestEndings(t *testing.T) { storetest.Endings(t, storeOfOne(t)) }

func TestOutageIsNeverHeld(t *testing.T) { storetest.Outage(t, storeOfOne(t)) }
