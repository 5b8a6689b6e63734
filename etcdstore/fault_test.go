//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

func open(t *testing.T, cluster ...*servers.Etcd) *Store {
	s := New(dial(t, cluster).Client, nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func request(owner string, ttl time.Duration) driver.Request {
	return driver.Request{Name: "name", Owner: owner, Holder: "holder", TTL: ttl}
}

func grant(t *testing.T, s *Store, req driver.Request) driver.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire: %+v, %v, want it granted", res, err)
	}
	return res
}

func wantFree(t *testing.T, s *Store) {
	t.Helper()
	if holds, err := s.Lookup(t.Context(), "name"); len(holds) > 0 || err != nil {
		t.Errorf("Lookup: %v, %v, want the name free", holds, err)
	}
}

type notice struct {
	name, owner string
	token       int64
}

// noticesOf returns the notices of a store.
func noticesOf(s *Store) <-chan notice {
	notices := make(chan notice, 10)
	s.Notify(func(name, owner string, token int64) { notices <- notice{name, owner, token} })
	return notices
}

// A request that arrives after the Release of its owner has no effect, whether its reply was given
// up or was an error.
func TestRequestThatArrivesAfterItsRelease(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	arrive := make(chan struct{})
	arrived := make(chan error, 1)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{member.Addr},
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if txn, ok := req.(*pb.TxnRequest); ok && writes(txn) && len(arrived) == 0 && arrive != nil {
				wait := arrive
				arrive = nil
				go func() {
					<-wait
					arrived <- invoke(context.WithoutCancel(ctx), method, req, reply, conn, opts...)
				}()
				return status.Error(codes.Unavailable, "the reply was lost")
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := New(client, nil)
	defer s.Close()
	late := arrive
	if res, err := s.Acquire(t.Context(), request("owner", time.Hour)); err == nil || driver.IsNotApplied(err) {
		t.Fatalf("Acquire: %+v, %v, want it in doubt", res, err)
	}
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); released || err != nil {
		t.Fatalf("Release: %v, %v", released, err)
	}
	close(late)
	if err := <-arrived; rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseNotFound) {
		t.Errorf("the late request: %v, want its lease gone", err)
	}
	wantFree(t, s)
	grant(t, s, request("other", time.Hour))
}

// A hold whose lease has ended on the server is lost, and its lease is not used again.
func TestLeaseThatEndsUnnoticed(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t))
	first := grant(t, s, request("owner", time.Minute))
	id := s.entries[[2]string{"name", "owner"}].lease.id
	if _, err := s.client.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Minute, Token: first.Token}})
	if err != nil || entries[0].State != driver.Lost {
		t.Errorf("Renew: %v, %v, want Lost", entries, err)
	}
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); released || err != nil {
		t.Errorf("Release: %v, %v", released, err)
	}
	if second := grant(t, s, request("next", time.Minute)); second.Token <= first.Token {
		t.Errorf("the token %d follows %d", second.Token, first.Token)
	}
}

// A place is admitted although its watch was cut and the revisions that it missed were compacted.
func TestCompaction(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	other, c := open(t, member), dial(t, []*servers.Etcd{member})
	s := New(c.Client, nil)
	t.Cleanup(func() { _ = s.Close() })
	granted := noticesOf(s)
	grant(t, other, request("owner", time.Hour))
	req := request("waiter", time.Hour)
	req.Place = time.Hour
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Waiting {
		t.Fatalf("Acquire: %+v, %v", res, err)
	}
	target := c.proxies[0]
	target.SetTarget("127.0.0.1:1") // no new connection succeeds
	target.Reset()
	if _, err := other.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); err != nil {
		t.Fatal(err)
	}
	resp, err := other.client.Put(t.Context(), "other key", "")
	if err == nil {
		_, err = other.client.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
	target.SetTarget(member.Addr)
	select {
	case n := <-granted:
		if n.owner != "waiter" || n.token == 0 {
			t.Errorf("the notice %+v", n)
		}
	case <-time.After(30 * time.Second):
		t.Error("no notice came")
	}
}

// A member that is cut off by the network, whether it has led or not, answers nothing about locks
// that change among the others. When it is back, it shows their changes, and the places there
// is notified.
func TestMemberCutOffByTheNetwork(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdClusterWithLinks(t, 3)
	for _, leads := range []bool{true, false} {
		i := slices.IndexFunc(cluster, func(m *servers.Etcd) bool { return m.Leads() == leads })
		alone, others := open(t, cluster[i]), open(t, cluster[(i+1)%3], cluster[(i+2)%3])
		notices := noticesOf(alone)
		held := grant(t, alone, request("owner", time.Hour))
		waited := request("other", time.Hour)
		waited.Name = "waited"
		grant(t, others, waited)
		waiter := waited
		waiter.Owner, waiter.Place = "waiter", time.Hour
		if res, err := alone.Acquire(t.Context(), waiter); err != nil || !res.Waiting {
			t.Fatalf("Acquire: %+v, %v, want a place", res, err)
		}
		cluster[i].CutOff()
		eventually(t, "release by the others", func() bool {
			_, err := others.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"})
			return err == nil
		})
		if _, err := others.Release(t.Context(), driver.ReleaseRequest{Name: "waited", Owner: "other"}); err != nil {
			t.Error(err)
		}
		next := grant(t, others, request("next", time.Hour))
		for verb, call := range storecheck.Calls(alone, request("third", time.Minute)) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if err := call(ctx); err == nil {
				t.Errorf("%s of a member that is cut off succeeds", verb)
			}
			cancel()
		}
		fresh := request("next", time.Hour)
		fresh.Name = "fresh"
		grant(t, others, fresh)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if holds, err := alone.Lookup(ctx, "fresh"); err == nil {
			t.Errorf("Lookup: %v, want an error", holds)
		}
		cancel()
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
		for n := receive(t, notices); n.owner != "waiter" || n.token == 0; n = receive(t, notices) {
			// The notice of the hold that has ended comes too, in either order.
			if n.owner != "owner" || n.token != 0 {
				t.Errorf("the notice %+v", n)
			}
		}
		entries, err := alone.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour, Token: held.Token}})
		if err != nil || entries[0].State != driver.Lost {
			t.Errorf("Renew: %v, %v, want Lost", entries, err)
		}
		for _, release := range []driver.ReleaseRequest{{Name: "name", Owner: "next"}, {Name: "fresh", Owner: "next"}, {Name: "waited", Owner: "waiter"}} {
			if released, err := alone.Release(t.Context(), release); !released || err != nil {
				t.Errorf("Release: %v, %v", released, err)
			}
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within a minute", what)
		}
	}
}

// A cluster that has lost its disks grants a name that is held. The token of the second holder is
// greater, and the first is lost by its next renewal.
func TestForgetfulCluster(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s, other := open(t, member), open(t, member)
	first := grant(t, s, request("owner", time.Hour))
	member.RestartEmpty()
	var second driver.Result
	eventually(t, "grant by the empty cluster", func() (granted bool) {
		var err error
		second, err = other.Acquire(t.Context(), request("other", time.Hour))
		return err == nil && second.Granted
	})
	if second.Token <= first.Token {
		t.Errorf("the token %d follows %d", second.Token, first.Token)
	}
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour, Token: first.Token}})
	if err != nil || entries[0].State != driver.Lost {
		t.Errorf("Renew: %v, %v, want Lost", entries, err)
	}
	grant(t, s, driver.Request{Name: "another", Owner: "owner", TTL: time.Hour}) // with a lease of the empty cluster
}

// A learner refuses all requests, and has applied none.
func TestLearner(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 1)
	grant(t, open(t, cluster...), request("owner", time.Hour))
	s := open(t, servers.StartEtcdLearner(t, cluster))
	for verb, call := range storecheck.Calls(s, request("owner", time.Hour)) {
		if err := call(t.Context()); err == nil || !driver.IsNotApplied(err) {
			t.Errorf("%s: %v, want it refused", verb, err)
		}
	}
}

// A hold of 6 s survives the death of the leader.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	s, other := open(t, cluster...), open(t, cluster...)
	const ttl = 6 * time.Second
	held := grant(t, s, request("owner", ttl))
	direct, err := clientv3.New(clientv3.Config{Endpoints: servers.EtcdAddrs(cluster)})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	for _, m := range cluster {
		if state, err := direct.Status(t.Context(), m.Addr); err == nil && state.Leader == state.Header.MemberId {
			m.Kill()
			break
		}
	}
	renewedAt, longest := time.Now(), time.Duration(0)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		sent := time.Now()
		entries, err := s.Renew(ctx, []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: ttl, Token: held.Token}})
		if err == nil && entries[0].State == driver.Held {
			longest, renewedAt = max(longest, sent.Sub(renewedAt)), sent
		} else if entries[0].State == driver.Lost {
			t.Fatalf("the hold is lost %v after its last renewal", time.Since(renewedAt))
		}
		if res, err := other.Acquire(ctx, request("other", ttl)); err == nil && res.Granted {
			t.Fatal("another owner is granted the name")
		}
		cancel()
	}
	t.Logf("the longest time between two renewals was %v", longest)
	if since := time.Since(renewedAt); since > ttl {
		t.Errorf("the last renewal was %v ago", since)
	}
}

// useUpSpace writes until the alarm NOSPACE is raised.
func useUpSpace(t *testing.T, s *Store) {
	t.Helper()
	for i := 0; ; i++ {
		_, err := s.client.Put(t.Context(), "filling", strings.Repeat("x", 100_000))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if err != nil || i == 1000 {
			t.Fatal(err)
		}
	}
}

// A cluster without space grants nothing, which it does not report as held, and still releases.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t, "--quota-backend-bytes", "2097152"))
	grant(t, s, request("owner", time.Hour))
	useUpSpace(t, s)
	for _, name := range []string{"name", "free"} {
		req := request("other", time.Hour)
		req.Name = name
		if res, err := s.Acquire(t.Context(), req); !errors.Is(err, rpctypes.ErrNoSpace) || !driver.IsNotApplied(err) {
			t.Errorf("Acquire of %q: %+v, %v, want ErrNoSpace", name, res, err)
		}
	}
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); !released || err != nil {
		t.Errorf("Release: %v, %v", released, err)
	}
	wantFree(t, s)
}

// A server whose space is about to be used up applies transactions that it answers with ErrNoSpace.
// What they have made ends, with the lease.
func TestNoSpaceAfterTheEffect(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t))
	var answers atomic.Int32 // that are still to be replaced
	onUnary := func(_ context.Context, req any, send func() error) error {
		err := send()
		if txn, ok := req.(*pb.TxnRequest); ok && writes(txn) && err == nil && answers.Add(-1) >= 0 {
			return rpctypes.ErrGRPCNoSpace
		}
		return err
	}
	s.onUnary.Store(&onUnary)
	for range 3 {
		answers.Store(1)
		if res, err := s.Acquire(t.Context(), request("owner", time.Hour)); !errors.Is(err, rpctypes.ErrNoSpace) || !driver.IsNotApplied(err) {
			t.Errorf("Acquire: %+v, %v, want ErrNoSpace", res, err)
		}
		wantFree(t, s.Store)
	}
	grant(t, s.Store, request("next", time.Hour))
	if leases, err := s.client.Leases(t.Context()); err != nil || len(leases.Leases) > 2 {
		t.Errorf("%v, %v, want the leases of a hold and of its last token", leases, err)
	}
}

// Nothing secret is in an error of a URL.
func TestURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"etcd://h1,h2:2379/some/prefix": "some/prefix/",
		"etcds://h1":                    DefaultPrefix,
	} {
		s, err := openText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if s.prefix != want || s.Close() != nil {
			t.Errorf("%s: the prefix is %q, want %q", text, s.prefix, want)
		}
	}
	for _, text := range []string{"etcd:", "etcd://:2379", "etcd://u@h", "etcd://:secret@h", "etcd://h?cert_file=secret", "etcds://h?ca_file=/nowhere", "etcds://h?cert_file=x"} {
		if _, err := openText(t, text); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// An address of another server, or with the wrong scheme, has an error with the cause once, and
// with what to look at.
func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	plain, redis := servers.StartEtcd(t), servers.StartRedis(t)
	for text, want := range map[string]string{
		"etcd://" + redis.Addr:  "no etcd server, one with TLS (etcds://)",
		"etcds://" + plain.Addr: "a server without TLS (etcd://)",
		"etcd://127.0.0.1:1":    "connection refused",
	} {
		s, err := openText(t, text)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err = s.Acquire(ctx, request("owner", time.Minute))
		cancel()
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v, want %q once", text, err, want)
		}
		must(t, s.Close())
	}
}

func openText(t *testing.T, text string) (*Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openURL(t.Context(), u)
	if err != nil {
		return nil, err
	}
	return s.(*Store), nil
}

// Without a deadline of its own, no verb waits for a server that does not reply.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	c := dial(t, []*servers.Etcd{servers.StartEtcd(t)})
	s := New(c.Client, nil)
	t.Cleanup(func() { _ = s.Close() })
	grant(t, s, request("owner", time.Hour))
	c.proxies[0].Hold(faultproxy.Down)
	other := request("other", time.Minute)
	other.Name = "another"
	for verb, call := range storecheck.Calls(s, other) {
		replied := make(chan error, 1)
		go func() { replied <- call(t.Context()) }()
		select {
		case err := <-replied:
			if err == nil {
				t.Errorf("%s succeeds", verb)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s goes on after a minute", verb)
		}
	}
}

// A Release with a keep that arrives after its repetition was confirmed changes nothing, whether it
// was the first or repeated another one.
func TestLateKeep(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t))
	for _, repeats := range []bool{false, true} {
		req := request("owner", time.Hour)
		req.Name = fmt.Sprint("repeats=", repeats)
		grant(t, s.Store, req)
		keep := func(d time.Duration) (bool, error) {
			return s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: "owner", Keep: d})
		}
		if repeats {
			if released, err := keep(time.Hour); !released || err != nil {
				t.Fatal(released, err)
			}
		}
		var late []*pb.TxnRequest
		lose := func(_ context.Context, req any, send func() error) error {
			if txn, ok := req.(*pb.TxnRequest); ok && writes(txn) {
				late = append(late, txn)
				if !repeats || len(late) == 2 { // One that repeats finds the keep first.
					return status.Error(codes.Unavailable, "the request was lost")
				}
			}
			return send()
		}
		s.onUnary.Store(&lose)
		if released, err := keep(time.Minute); (err == nil || driver.IsNotApplied(err)) && !(repeats && len(late) == 1) {
			t.Fatalf("%s: Release: %v, %v, want it in doubt", req.Name, released, err)
		}
		s.onUnary.Store(nil)
		if released, err := keep(time.Hour); !released || err != nil {
			t.Fatalf("%s: Release again: %v, %v", req.Name, released, err)
		}
		for _, txn := range late {
			if _, err := clientv3.RetryKVClient(s.client).Txn(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
		}
		holds, err := s.Lookup(t.Context(), req.Name)
		if err != nil || len(holds) != 1 || !holds[0].Kept || holds[0].Remaining < 30*time.Minute {
			t.Errorf("%v, %v, want it kept for an hour", holds, err)
		}
	}
}
