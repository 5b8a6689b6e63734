//go:build unix

package etcdstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A user with rights elsewhere, and a key on the leases that others use, stops no lock: from
// release 3.5 on, a server refuses a lease to a user without the right to write all of its keys. A
// user without a right is refused, and leaves no lease.
func TestForeignKeyOnALease(t *testing.T) {
	t.Parallel()
	m := servers.StartEtcd(t, "--bcrypt-cost", "4")
	root := enableAuth(t, m, map[string]right{"writer": {mayDoIt, DefaultPrefix}, "neighbor": {mayDoIt, "other/"}})
	neighbor, err := openText(t, "etcd://neighbor:secret@"+m.Addr)
	must(t, err)
	defer neighbor.Close()
	for range 3 {
		s, err := openText(t, "etcd://writer:secret@"+m.Addr)
		must(t, err)
		defer s.Close()
		for range 2 {
			grant(t, s, request("owner", time.Minute))
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"})
			must(t, err)
			leases, err := root.Leases(t.Context())
			must(t, err)
			for i, l := range leases.Leases {
				_, _ = neighbor.client.Put(t.Context(), fmt.Sprint("other/", i), "", clientv3.WithLease(l.ID)) // A server may refuse it.
			}
		}
	}
	leases, err := root.Leases(t.Context())
	must(t, err)
	if res, err := neighbor.Acquire(t.Context(), request("neighbor", 2*time.Hour)); !driver.IsNotApplied(err) {
		t.Errorf("Acquire without a right: %+v, %v, want it refused", res, err)
	}
	must(t, neighbor.Close())
	after, err := root.Leases(t.Context())
	must(t, err)
	if len(after.Leases) > len(leases.Leases)+1 {
		t.Errorf("%d leases are left by a user without a right", len(after.Leases)-len(leases.Leases))
	}
}

// Two teams with rights to names of their own below one prefix do not disturb each other.
func TestTeamsBelowOnePrefix(t *testing.T) {
	t.Parallel()
	m := servers.StartEtcd(t, "--bcrypt-cost", "4")
	root := enableAuth(t, m, map[string]right{"a": {mayDoIt, DefaultPrefix + "rec/a"}, "b": {mayDoIt, DefaultPrefix + "rec/b"}})
	for _, team := range []string{"a", "b"} {
		for _, part := range []string{"own/", "tok/"} {
			p := DefaultPrefix + part + team
			_, err := root.RoleGrantPermission(t.Context(), team, p, clientv3.GetPrefixRangeEnd(p), mayDoIt)
			must(t, err)
		}
	}
	for _, team := range []string{"a", "b"} {
		s, err := openText(t, "etcd://"+team+":secret@"+m.Addr)
		must(t, err)
		defer s.Close()
		foreign := request("owner", time.Minute)
		foreign.Name = map[string]string{"a": "b/y", "b": "a/y"}[team]
		if res, err := s.Acquire(t.Context(), foreign); !driver.IsNotApplied(err) {
			t.Errorf("team %s acquires %q: %+v, %v", team, foreign.Name, res, err)
		}
		for i := range 300 { // more than there are leases of last tokens
			req := request("owner", time.Minute)
			req.Name = team + "/" + strings.Repeat("x", i)
			grant(t, s, req)
		}
	}
}
