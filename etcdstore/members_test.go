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
)

// endStreams ends all streams for keep-alives, so that each is opened again.
func endStreams(s *Store) {
	s.mu.Lock()
	n := s.streamCount
	s.mu.Unlock()
	for range n {
		st := <-s.streams
		if st.end != nil {
			st.end()
		}
		s.streams <- keepAliveStream{}
	}
}

// A hold is renewed over two addresses of which one is of a member that has no leader, that hangs,
// or that is a learner, wherever each request goes.
func TestRenewalsBesideABadMember(t *testing.T) {
	t.Parallel()
	for what, start := range map[string]func(t *testing.T) (good, bad *servers.Etcd, harm func()){
		"cut off": func(t *testing.T) (good, bad *servers.Etcd, harm func()) {
			cluster := servers.StartEtcdClusterWithLinks(t, 3)
			i := slices.IndexFunc(cluster, func(m *servers.Etcd) bool { return !m.Leads() })
			return cluster[(i+1)%3], cluster[i], cluster[i].CutOff
		},
		"hangs": func(t *testing.T) (good, bad *servers.Etcd, harm func()) {
			cluster := servers.StartEtcdCluster(t, 3)
			i := slices.IndexFunc(cluster, func(m *servers.Etcd) bool { return !m.Leads() })
			return cluster[(i+1)%3], cluster[i], cluster[i].Pause
		},
		"learner": func(t *testing.T) (good, bad *servers.Etcd, harm func()) {
			cluster := servers.StartEtcdCluster(t, 1)
			return cluster[0], servers.StartEtcdLearner(t, cluster), func() {}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			good, bad, harm := start(t)
			s := New(directClient(t, good, bad), nil)
			t.Cleanup(func() { must(t, s.Close()) })
			var held driver.Result
			eventually(t, "grant", func() (granted bool) {
				var err error
				held, err = s.Acquire(t.Context(), request("owner", time.Hour))
				return err == nil && held.Granted
			})
			harm()
			for i := range 4 { // The requests go to the members in turns.
				expireInMind(s)
				endStreams(s)
				if i%2 == 1 {
					_, err := s.read(t.Context(), clientv3.OpGet("name")) // The turns are the other way round.
					must(t, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour, Token: held.Token}})
				cancel()
				if err != nil || entries[0].State != driver.Held {
					t.Fatalf("renewal %d: %v, %v", i, entries, err)
				}
			}
		})
	}
}

// A waiter goes on while a majority is down: no error of that is a refusal.
func TestMajorityDownIsNoRefusal(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	s := open(t, cluster[0])
	grant(t, s, request("owner", time.Hour))
	fresh := request("fresh", time.Minute)
	fresh.Name = "fresh"
	grant(t, s, fresh) // and so the last token of the name has its lease
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "fresh", Owner: "fresh"}); !released || err != nil {
		t.Fatal(released, err)
	}
	cluster[1].Kill()
	cluster[2].Kill()
	eventually(t, "RetryError of a member without a leader", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.Lookup(ctx, "name")
		return err != nil && strings.Contains(err.Error(), "no leader")
	})
	_, err := s.Lookup(t.Context(), "name")
	if later := (*driver.RetryError)(nil); !errors.As(err, &later) {
		t.Errorf("Lookup: %v, want a RetryError", err)
	}
	// With an idle lease and without one, each caller waits for longer than MaxOutage.
	waiting := make(chan error, 2)
	for _, ttl := range []time.Duration{time.Minute, 77 * time.Second} {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			lock, err := holdfast.New(s, &holdfast.Config{MaxOutage: time.Second}).Acquire(ctx, "fresh", &holdfast.Options{TTL: ttl})
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

// A store whose client was closed refuses all calls, and its waiters end.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	grant(t, open(t, member), request("owner", time.Hour))
	client := directClient(t, member)
	s := New(client, nil)
	c := holdfast.New(s, &holdfast.Config{MaxOutage: time.Hour})
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), "name", nil)
		waiting <- err
	}()
	eventually(t, "waiter", func() bool {
		holds, err := s.Lookup(t.Context(), "name")
		return err == nil && len(holds) > 0 && holds[0].Waiting > 0
	})
	must(t, client.Close())
	if err := <-waiting; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire: %v, want ErrClosed", err)
	}
	if res, err := s.Acquire(t.Context(), request("other", time.Minute)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire: %+v, %v, want ErrClosed", res, err)
	}
}
