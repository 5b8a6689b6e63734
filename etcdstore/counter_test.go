//go:build unix

package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// counters returns the number of last tokens of each lease that has any below a prefix.
func counters(t *testing.T, c *clientv3.Client, prefix string) map[clientv3.LeaseID]int {
	t.Helper()
	resp, err := c.Get(t.Context(), prefix+"tok/", clientv3.WithPrefix())
	must(t, err)
	leases := map[clientv3.LeaseID]int{}
	for _, kv := range resp.Kvs {
		leases[clientv3.LeaseID(kv.Lease)]++
	}
	return leases
}

// The last tokens of names do not end together, and those of few names cost few leases. Each of
// them lasts for two days at least.
func TestLastTokensEndApart(t *testing.T) {
	t.Parallel()
	m := servers.StartEtcd(t)
	c := directClient(t, m)
	s := open(t, m)
	const n = 600
	renewals(t, s, n, time.Hour)
	var ends []time.Duration
	for id, n := range counters(t, c, DefaultPrefix) {
		if n > 20 {
			t.Errorf("%d last tokens end together", n)
		}
		left, err := c.TimeToLive(t.Context(), id)
		must(t, err)
		ends = append(ends, time.Duration(left.TTL)*time.Second)
	}
	if earliest, latest := slices.Min(ends), slices.Max(ends); earliest < 48*time.Hour-time.Minute || latest-earliest < 12*time.Hour {
		t.Errorf("the last tokens of %d names end in %v to %v", n, earliest, latest)
	}
	few := New(c, &Options{Prefix: "few/"})
	defer few.Close()
	for range 3 {
		grant(t, few, request("owner", time.Hour))
		_, err := few.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"})
		must(t, err)
	}
	if leases := counters(t, c, "few/"); len(leases) != 1 {
		t.Errorf("the last token of one name has the leases %v", leases)
	}
}

// A lease that a client with another clock has made, and that ends too early, gets no last token.
func TestLeaseTooShortForALastToken(t *testing.T) {
	t.Parallel()
	m := servers.StartEtcd(t)
	c := directClient(t, m)
	id := clientv3.LeaseID(0)
	for range 2 {
		s := open(t, m)
		grant(t, s, request("owner", time.Minute))
		_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"})
		must(t, err)
		for id = range counters(t, c, DefaultPrefix) {
			left, err := c.TimeToLive(t.Context(), id)
			must(t, err)
			if last := time.Duration(left.TTL) * time.Second; last < 48*time.Hour-time.Minute {
				t.Errorf("the last token is kept for %v", last)
			}
		}
		_, err = c.Revoke(t.Context(), id)
		must(t, err)
		_, err = pb.NewLeaseClient(c.ActiveConnection()).LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: int64(id), TTL: 47 * 60 * 60})
		must(t, err)
	}
}

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

// Leases that the server refuses for their keys are replaced, whatever its release, and the new
// ones are used until they end.
func TestRefusedLeases(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t))
	var refused, requests atomic.Int32
	refuse := func(_ context.Context, req any, send func() error) error {
		requests.Add(1)
		if txn, ok := req.(*pb.TxnRequest); ok {
			for _, op := range txn.Success {
				if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), "tok/") && put.Lease != 0 && refused.CompareAndSwap(0, 1) {
					refused.Store(1)
					return rpctypes.ErrGRPCPermissionDenied
				}
			}
		}
		return send()
	}
	s.onUnary.Store(&refuse)
	grant(t, s.Store, request("owner", time.Minute))
	if refused.Load() != 1 {
		t.Fatal("no lease was refused")
	}
	_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"})
	must(t, err)
	s.group.Wait()
	before := requests.Load()
	grant(t, s.Store, request("owner", time.Minute))
	if n := requests.Load() - before; n != 1 {
		t.Errorf("%d requests for the next grant, want 1", n)
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
