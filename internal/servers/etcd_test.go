//go:build unix

package servers

import (
	"slices"
	"strings"
	"testing"
)

// A cluster of three serves, also while one of its members is down, and takes the member in again.
func TestEtcdCluster(t *testing.T) {
	t.Parallel()
	members := StartEtcdCluster(t, 3)
	if v := members[0].Version(); !strings.HasPrefix(v, "etcd Version: ") {
		t.Errorf("the version is %q", v)
	}
	leaders := 0
	for _, m := range members {
		if m.Leads() {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d members lead", leaders)
	}
	members[0].Compact()
	members[1].Compact()
	members[0].RaiseNoSpace()
	if err := members[1].call("kv/put", `{"key": "YQ==", "value": "YQ=="}`, nil); err == nil || !strings.Contains(err.Error(), "space") {
		t.Errorf("a put without space: %v", err)
	}
	members[0].EndNoSpace()
	if err := members[1].call("kv/put", `{"key": "YQ==", "value": "YQ=="}`, nil); err != nil {
		t.Error(err)
	}
	members[0].Kill()
	waitUntil(t, "leader without a member", func() bool { return members[1].health() == nil })
	if err := members[0].health(); err == nil {
		t.Error("a member that was killed serves")
	}
	members[0].Start()
	members[1].Restart()
	for _, m := range members {
		waitUntil(t, "leader at "+m.Addr, func() bool { return m.health() == nil })
	}
}

func TestEtcdAlone(t *testing.T) {
	t.Parallel()
	member := StartEtcd(t)
	member.Restart()
	if err := member.health(); err != nil {
		t.Error(err)
	}
}

// A member that is cut off has no leader, whether it has led or not, while the others have one.
func TestEtcdCutOff(t *testing.T) {
	t.Parallel()
	members := StartEtcdClusterWithLinks(t, 3)
	for _, leads := range []bool{true, false} {
		i := slices.IndexFunc(members, func(m *Etcd) bool { return m.Leads() == leads })
		members[i].CutOff()
		for j, m := range members {
			if j != i {
				waitUntil(t, "leader at "+m.Addr, func() bool { return m.health() == nil })
			}
		}
		if err := members[i].health(); err == nil {
			t.Error("a member that is cut off serves")
		}
		members[i].Rejoin()
	}
}
