//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe" // sets one clock of a time

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// An observed is a store whose requests and keep-alives a test sees and changes.
type observed struct {
	*Store
	streams  atomic.Int32 // that were opened for keep-alives
	onUnary  atomic.Pointer[func(ctx context.Context, req any, send func() error) error]
	onStream atomic.Pointer[func(msg any, pass func() error) error] // of each request and reply
}

func openObserved(t *testing.T, member *servers.Etcd) *observed {
	o := &observed{}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{member.Addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				send := func() error { return invoke(ctx, method, req, reply, conn, opts...) }
				if f := o.onUnary.Load(); f != nil {
					return (*f)(ctx, req, send)
				}
				return send()
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := open(ctx, desc, conn, method, opts...)
				if err == nil && method == "/etcdserverpb.Lease/LeaseKeepAlive" {
					o.streams.Add(1)
					stream = observedStream{stream, o}
				}
				return stream, err
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o.Store = New(client, nil)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

type observedStream struct {
	grpc.ClientStream
	o *observed
}

func (s observedStream) pass(msg any, pass func() error) error {
	if f := s.o.onStream.Load(); f != nil {
		return (*f)(msg, pass)
	}
	return pass()
}

func (s observedStream) SendMsg(m any) error {
	return s.pass(m, func() error { return s.ClientStream.SendMsg(m) })
}

func (s observedStream) RecvMsg(m any) error {
	return s.pass(m, func() error { return s.ClientStream.RecvMsg(m) })
}

// renewals acquires names at once, and returns what renews them. The store does not know how long
// their leases last, so that each of them has to be kept alive.
func renewals(t *testing.T, s *Store, n int, ttl time.Duration) []driver.RenewRequest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reqs := make([]driver.RenewRequest, n)
	var group sync.WaitGroup
	for i := range reqs {
		group.Go(func() {
			req := request("owner", ttl)
			req.Name = fmt.Sprintf("name%04d", i)
			res, err := s.Acquire(ctx, req)
			if err != nil || !res.Granted {
				t.Errorf("Acquire: %+v, %v", res, err)
			}
			reqs[i] = driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: ttl, Token: res.Token}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	expireInMind(s)
	return reqs
}

// expireInMind has the store keep the leases of all entries alive before it relies on them.
func expireInMind(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		e.lease.certain = time.Now()
	}
}

func renewAll(t *testing.T, s *Store, reqs []driver.RenewRequest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	entries, err := s.Renew(ctx, reqs)
	if i := slices.IndexFunc(entries, func(e driver.Entry) bool { return e.State != driver.Held }); err != nil || i >= 0 {
		t.Errorf("Renew: %v, %v", entries, err)
	}
}

// Renewals that take long because the members are far from each other succeed, at a follower too,
// over more streams than one.
func TestFarMembers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdClusterWithLinks(t, 3)
	follower := cluster[slices.IndexFunc(cluster, func(m *servers.Etcd) bool { return !m.Leads() })]
	s := openObserved(t, follower)
	reqs := renewals(t, s.Store, 200, time.Hour)
	for _, m := range cluster {
		m.Delay(20 * time.Millisecond)
	}
	for range 2 {
		expireInMind(s.Store)
		renewAll(t, s.Store, reqs)
	}
	if n := s.streams.Load(); n < 2 || n > maxStreams {
		t.Errorf("%d streams", n)
	}
}

// silence has all streams get no reply until they are given up.
func (o *observed) silence() {
	silent := func(msg any, pass func() error) error {
		if _, ok := msg.(*pb.LeaseKeepAliveRequest); ok {
			return nil // and so is not sent
		}
		return pass()
	}
	o.onStream.Store(&silent)
}

// A keep-alive without an answer is no end of the caller's context. An acquisition goes on with
// another lease.
func TestSilentKeepAlive(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t))
	reqs := renewals(t, s.Store, 1, time.Hour)
	s.silence()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	entries, err := s.Renew(ctx, reqs)
	if err == nil || errors.Is(err, context.Canceled) || entries[0].State != driver.Unknown {
		t.Errorf("Renew: %v, %v, want no answer", entries, err)
	}
	grant(t, s.Store, request("owner", time.Minute))
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); !released || err != nil {
		t.Fatal(released, err)
	}
	idle := s.idle[61][0]
	idle.certain = time.Now().Add(time.Minute - time.Second) // too short
	res, err := s.Acquire(ctx, request("owner", time.Minute))
	if err != nil || !res.Granted {
		t.Errorf("Acquire: %+v, %v", res, err)
	}
}

// What is certain of a lease counts from before its request, not from the reply.
func TestCertainCountsFromTheSending(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t))
	var sent time.Time // the last one
	onUnary := func(_ context.Context, req any, send func() error) error {
		if _, ok := req.(*pb.LeaseGrantRequest); ok {
			sent = time.Now()
		}
		return send()
	}
	onStream := func(msg any, pass func() error) error {
		if _, ok := msg.(*pb.LeaseKeepAliveRequest); ok {
			sent = time.Now()
		}
		return pass()
	}
	s.onUnary.Store(&onUnary)
	s.onStream.Store(&onStream)
	l, err := s.takeLease(t.Context(), time.Now(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if latest := sent.Add(61 * time.Second); l.certain.After(latest) || l.certain.Before(latest.Add(-time.Minute)) {
		t.Errorf("a new lease is certain %v later than its request allows", l.certain.Sub(latest))
	}
	l.certain = time.Time{}
	if err := s.keepAlive(t.Context(), []*lease{l}); err != nil {
		t.Fatal(err)
	}
	if latest := sent.Add(61 * time.Second); l.certain.After(latest) || l.certain.Before(latest.Add(-time.Minute)) {
		t.Errorf("a lease that was kept alive is certain %v later than its request allows", l.certain.Sub(latest))
	}
}

// A lease may have ended while the system was suspended, and one clock stood still.
func TestLeaseEndsDuringASuspend(t *testing.T) {
	t.Parallel()
	const suspended = time.Hour
	before := time.Now()
	after := before.Add(suspended + time.Second)
	*(*time.Duration)(unsafe.Add(unsafe.Pointer(&after), 8)) -= suspended // the monotonic clock
	if d := after.Sub(before); d != time.Second {
		t.Fatalf("the monotonic clock is %v later, want 1 s", d)
	}
	for lasts, want := range map[time.Duration]bool{time.Minute: true, 2 * suspended: false, 0: true} {
		if l := (&lease{certain: before.Add(lasts)}); l.endsBefore(after) != want {
			t.Errorf("a lease that lasts %v: %v after the suspend, want %v", lasts, !want, want)
		}
	}
	if l := (&lease{certain: after}); l.endsBefore(before) || !l.endsBefore(before.Add(time.Minute)) {
		t.Error("the monotonic clock does not count")
	}
}

// Leases that the server has lost are used by no request twice.
func TestStockOfLostLeases(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t))
	lose := func() {
		t.Helper()
		for i := range 10 {
			req := request("owner", time.Minute)
			req.Name = fmt.Sprint("stock", i)
			grant(t, s, req)
		}
		for i := range 10 {
			if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: fmt.Sprint("stock", i), Owner: "owner"}); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.idle[61]) < 10 {
			t.Fatalf("%d leases are idle", len(s.idle[61]))
		}
		for _, l := range s.idle[61] {
			if _, err := s.client.Revoke(t.Context(), l.id); err != nil {
				t.Fatal(err)
			}
		}
	}
	lose()
	grant(t, s, request("owner", time.Minute))
	lose()
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner", Keep: time.Minute}); !released || err != nil {
		t.Errorf("Release with a keep: %v, %v", released, err)
	}
	req := request("owner", time.Second)
	req.Name = "short"
	first := grant(t, s, req)
	lose()
	renewAll(t, s, []driver.RenewRequest{{Name: "short", Owner: "owner", TTL: time.Minute, Token: first.Token}})
}

// A lease that a request in doubt may still use is not given to another name, and one of another
// process is not ended.
func TestChangedLeaseInUse(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	c := dial(t, []*servers.Etcd{member})
	s, other := New(c.Client, nil), open(t, member)
	defer s.Close()
	c.fault.Store(int32(drivertest.ReplyLost))
	if _, err := s.Acquire(t.Context(), request("owner", 10*time.Second)); err == nil || driver.IsNotApplied(err) {
		t.Fatalf("Acquire: %v, want it in doubt", err)
	}
	renewAll(t, s, []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Minute}})
	second := request("owner", 10*time.Second)
	second.Name = "second"
	held := grant(t, s, second)
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); err != nil {
		t.Error(err)
	}
	id := s.entries[[2]string{"second", "owner"}].lease.id
	renewAll(t, other, []driver.RenewRequest{{Name: "second", Owner: "owner", TTL: time.Minute, Token: held.Token}})
	must(t, other.Close()) // It would have ended the lease.
	if resp, err := s.client.TimeToLive(t.Context(), id); err != nil || resp.TTL <= 0 {
		t.Errorf("the lease of another process: %+v, %v", resp, err)
	}
}
