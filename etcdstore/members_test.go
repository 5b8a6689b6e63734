//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/quorumstore"
)

// TestThreeMembers has what needs more than one member, one after the other.
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdClusterWithLinks(t, 3)
	t.Run("cut off leader", func(t *testing.T) { testCutOff(t, cluster, true) })
	t.Run("cut off follower", func(t *testing.T) { testCutOff(t, cluster, false) })
	t.Run("member hangs", func(t *testing.T) { testHangingMember(t, cluster) })
	t.Run("leader without a majority", func(t *testing.T) { testUnconfirmed(t, cluster) })
	t.Run("majority down", func(t *testing.T) { testMajorityDown(t, cluster) })
}

func index(cluster []*servers.Etcd, leads bool) int {
	return slices.IndexFunc(cluster, func(m *servers.Etcd) bool { return m.Leads() == leads })
}

// A member that is cut off by the network, whether it has led or not, answers nothing about locks
// that change among the others. When it is back, it shows their changes, and the place there has
// become a hold.
func testCutOff(t *testing.T, cluster []*servers.Etcd, leads bool) {
	i := index(cluster, leads)
	alone, others := open(t, cluster[i]), open(t, cluster[(i+1)%3], cluster[(i+2)%3])
	held := grant(t, alone, request("owner", time.Hour))
	grant(t, others, driver.Request{Name: "waited", Owner: "other", TTL: time.Hour})
	waitFor(t, alone, "waited", "waiter")
	cluster[i].CutOff()
	for name, owner := range map[string]string{"name": "owner", "waited": "other"} {
		eventually(t, "release by the others", func() bool {
			_, err := others.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: owner})
			return err == nil
		})
	}
	next := grant(t, others, request("next", time.Hour))
	for verb, call := range storecheck.Calls(alone, request("third", time.Minute)) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := call(ctx); err == nil {
			t.Errorf("%s of a member that is cut off succeeds", verb)
		}
		cancel()
	}
	c := holdfast.New(alone, nil)
	if _, err := c.TryAcquire(t.Context(), "name", nil); !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("TryAcquire: %v, want ErrUnavailable", err)
	}
	cluster[i].Rejoin()
	eventually(t, "record of the others", func() bool {
		holds, err := alone.Lookup(t.Context(), "name")
		if err == nil && (len(holds) != 1 || holds[0].Token != next.Token) {
			t.Fatalf("Lookup: %v, want the token %d", holds, next.Token)
		}
		return err == nil
	})
	if state := renewedAs(t, alone, "waited", "waiter", time.Hour, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	if state := renewed(t, alone, "owner", time.Hour, held.Token); state != driver.Lost {
		t.Errorf("Renew: %v, want Lost", state)
	}
}

// A hold is renewed over addresses of which one is of a member that hangs, wherever each request
// goes.
func testHangingMember(t *testing.T, cluster []*servers.Etcd) {
	i := index(cluster, false)
	s := New(directClient(t, cluster[(i+1)%3], cluster[i]), &Options{Prefix: t.Name() + "/"})
	defer s.Close()
	held := grant(t, s, request("owner", time.Hour))
	cluster[i].Pause()
	defer cluster[i].Resume()
	for range 3 {
		s.leaseOf("name", "owner").certain = time.Now().Add(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour, Token: held.Token}})
		cancel()
		if err != nil || entries[0].State != driver.Held {
			t.Fatalf("Renew: %v, %v", entries, err)
		}
	}
}

// A leader that does not know yet that it has no majority confirms no hold, whether it is renewed
// alone or beside others.
func testUnconfirmed(t *testing.T, cluster []*servers.Etcd) {
	i := index(cluster, true)
	s := open(t, cluster[i])
	held := grant(t, s, request("owner", time.Hour))
	grant(t, s, driver.Request{Name: "beside", Owner: "owner", TTL: time.Hour})
	s.leaseOf("name", "owner").certain = time.Now().Add(2 * time.Hour) // It needs no keep-alive.
	for _, other := range []*servers.Etcd{cluster[(i+1)%3], cluster[(i+2)%3]} {
		other.Pause()
		defer other.Resume()
	}
	brief := func() context.Context { // shorter than an election timeout
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	eventually(t, "read that fails", func() bool { // A member that is to be stopped goes on for a moment.
		_, err := s.client.Get(brief(), "key")
		return err != nil
	})
	reqs := []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour, Token: held.Token}, {Name: "beside", Owner: "owner", TTL: time.Hour}}
	for n := range reqs {
		entries, err := s.Renew(brief(), reqs[:n+1])
		if err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew of %d: %v, %v, want no answer", n+1, entries, err)
		}
	}
}

// A hold that is renewed survives while one member of five hangs and another one is dead, of which
// one has led. It is never lost, nobody else is granted the name, and each request ends in time.
func TestFiveMembers(t *testing.T) {
	cluster := servers.StartEtcdCluster(t, 5)
	s, other := open(t, cluster...), open(t, cluster...)
	const ttl, timeout = 20 * time.Second, 3 * time.Second // longer than an election on a busy machine
	held := grant(t, s, request("owner", ttl))
	for _, dies := range []bool{true, false} { // the leader, or it hangs
		var leader int
		eventually(t, "leader", func() bool {
			leader = index(cluster, true)
			return leader >= 0
		})
		hung, dead := cluster[leader], cluster[(leader+1)%5]
		if dies {
			hung, dead = dead, hung
		}
		hung.Pause()
		dead.Kill()
		for renewals := 0; renewals < 3; time.Sleep(100 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			began := time.Now()
			entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: ttl, Token: held.Token}})
			switch {
			case err == nil && entries[0].State == driver.Held:
				renewals++
			case entries[0].State == driver.Lost:
				t.Fatal("the hold is lost")
			}
			if res, err := other.Acquire(ctx, request("other", ttl)); err == nil && res.Granted {
				t.Fatal("another owner is granted the name")
			}
			if took := time.Since(began); took > timeout+time.Second {
				t.Errorf("the requests take %v", took)
			}
			cancel()
		}
		hung.Resume()
		dead.Start()
	}
}

// A waiter goes on while a majority is down: no error of that is a refusal.
func testMajorityDown(t *testing.T, cluster []*servers.Etcd) {
	s := open(t, cluster[0])
	grant(t, s, request("owner", time.Hour))
	cluster[1].Kill()
	cluster[2].Kill()
	var later *driver.RetryError
	eventually(t, "RetryError of a member without a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.Lookup(ctx, "name")
		return errors.As(err, &later) && strings.Contains(err.Error(), "no leader")
	})
	c := holdfast.New(s, &holdfast.Config{MaxOutage: time.Second})
	waiting := make(chan error, 2)
	for _, ttl := range []time.Duration{time.Hour, 77 * time.Second} { // with a lease, and without one
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			lock, err := c.Acquire(ctx, "fresh", &holdfast.Options{TTL: ttl})
			if err == nil {
				err = lock.Release()
			}
			waiting <- err
		}()
	}
	select {
	case err := <-waiting:
		t.Fatalf("Acquire during the outage: %v, want it to wait", err)
	case <-time.After(4 * time.Second): // longer than a request
	}
	cluster[1].Start()
	cluster[2].Start()
	must(t, <-waiting)
	must(t, <-waiting)
}

// A learner refuses all requests, and has applied none. Beside a voter it costs nothing.
func TestLearner(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 1)
	grant(t, open(t, cluster...), request("owner", time.Hour))
	learner := servers.StartEtcdLearner(t, cluster)
	s := open(t, learner)
	for verb, call := range storecheck.Calls(s, request("other", time.Hour)) {
		if err := call(t.Context()); err == nil || !driver.IsNotApplied(err) {
			t.Errorf("%s: %v, want it refused", verb, err)
		}
	}
	both := New(directClient(t, learner, cluster[0]), &Options{Prefix: t.Name() + "/both/"})
	defer both.Close()
	held := grant(t, both, request("owner", time.Hour))
	for range 4 {
		if state := renewed(t, both, "owner", time.Hour, held.Token); state != driver.Held {
			t.Errorf("Renew: %v", state)
		}
	}
}

// A waiter gets its turn although its watch was cut and the revisions that it missed were
// compacted.
func TestCompaction(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	other, c := open(t, member), dial(t, []*servers.Etcd{member})
	s := openClient(t, c)
	grant(t, other, request("owner", time.Hour))
	granted := make(chan error, 1)
	go func() {
		_, err := holdfast.New(s, nil).Acquire(t.Context(), "name", nil)
		granted <- err
	}()
	eventually(t, "place", func() bool {
		holds, err := other.Lookup(t.Context(), "name")
		return err == nil && holds[0].Waiting == 1
	})
	target := c.proxies[0]
	target.SetTarget("127.0.0.1:1") // no new connection succeeds
	target.Reset()
	release(t, other, "owner")
	resp, err := other.client.Put(t.Context(), "other key", "")
	must(t, err)
	_, err = other.client.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	target.SetTarget(member.Addr)
	must(t, receive(t, granted))
}

// A cluster is no node of a quorum.
func TestQuorum(t *testing.T) {
	if _, err := holdfast.Open(t.Context(), quorumstore.URL("etcd://127.0.0.1:1"), nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Open: %v, want ErrUnsupported", err)
	}
}
