//go:build unix

package etcddoctor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	_ "github.com/holdfast-go/holdfast/etcdstore/etcddoctor"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A cluster that is well has no warning, beside that of an old release; one with a member down,
// with an alarm, or with the address of another cluster, has.
func TestExamine(t *testing.T) {
	members := servers.StartEtcdCluster(t, 3)
	examine := func(addrs ...string) map[string]doctor.Finding {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		client, err := holdfast.Open(ctx, "etcd://"+strings.Join(addrs, ","), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		findings, err := doctor.Examine(ctx, client.Store(), nil)
		if err != nil {
			t.Errorf("%v: %v", findings, err)
		}
		worst := map[string]doctor.Finding{}
		for _, f := range findings {
			if f.Severity > worst[f.Check].Severity {
				worst[f.Check] = f
			}
		}
		return worst
	}
	all := servers.EtcdAddrs(members)
	for check, f := range examine(all...) {
		if f.Severity > doctor.Note && check != "etcd.version" {
			t.Errorf("well: %v", f)
		}
	}
	members[2].Kill()
	if f := examine(all...)["etcd.member"]; f.Severity != doctor.Warning {
		t.Errorf("a member is down: %v", f)
	}
	members[2].Start()
	other := servers.StartEtcd(t, "--initial-cluster-token", "another")
	if f := examine(append(all, other.Addr)...)["etcd.members"]; f.Severity != doctor.Failure {
		t.Errorf("two clusters: %v", f)
	}
	other.RaiseNoSpace()
	if f := examine(other.Addr)["etcd.space"]; f.Severity != doctor.Failure {
		t.Errorf("no space: %v", f)
	}
}
