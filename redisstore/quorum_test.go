//go:build unix

package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Each request of a batch has its own outcome.
func TestQuorumBatch(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartRedis(t).Addr, nil)
	held, ours := grant(t, s, "held", time.Minute), grant(t, s, "ours", time.Minute)
	free, busy, ahead, noOwner := request("free", time.Minute), request("held", time.Minute), request("ahead", time.Minute), request("bad", time.Minute)
	ahead.Floor, noOwner.Owner = time.Now().Add(2*driver.MaxLead).UnixMicro(), ""
	reqs := []*quorumbatch.Request{
		{Acquire: &free},
		{Acquire: &busy},
		{Acquire: &ahead},
		{Acquire: &noOwner},
		{Release: driver.ReleaseRequest{Name: ours.Name, Owner: ours.Owner}},
		{Release: driver.ReleaseRequest{Name: held.Name, Owner: ours.Owner}},
	}
	quorumbatch.Of(s)(t.Context(), reqs)
	if r := reqs[0]; r.Err != nil || !r.Acquired.Granted || r.Acquired.Token == 0 {
		t.Errorf("a free lock: %+v, %v", r.Acquired, r.Err)
	}
	if r := reqs[1]; r.Err != nil || r.Acquired.Granted || r.Acquired.Held.Holder != held.Holder {
		t.Errorf("a lock that is held: %+v, %v", r.Acquired, r.Err)
	}
	for _, r := range reqs[2:4] {
		if !errors.Is(r.Err, driver.ErrInvalid) || r.Acquired.Granted {
			t.Errorf("%q: %+v, %v, want ErrInvalid", r.Acquire.Name, r.Acquired, r.Err)
		}
	}
	if r := reqs[4]; r.Err != nil || !r.Released {
		t.Errorf("a release: %v, %v", r.Released, r.Err)
	}
	if r := reqs[5]; r.Err != nil || r.Released {
		t.Errorf("a release by another owner: %v, %v", r.Released, r.Err)
	}
	_ = s.Close()
	r := &quorumbatch.Request{Release: driver.ReleaseRequest{Name: "name", Owner: "owner"}}
	if quorumbatch.Of(s)(t.Context(), []*quorumbatch.Request{r}); !errors.Is(r.Err, driver.ErrClosed) {
		t.Errorf("a closed store: %v", r.Err)
	}
}

// Waiters of a quorum have no place and stand in nobody's way. They are asked to try again at a
// release and at the beginning of a keep, also of a hold that was granted when they waited already.
func TestQuorumWaiters(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	s, other := open(t, server.Addr, nil), open(t, server.Addr, nil)
	held := grant(t, other, "name", time.Minute)
	waiter, second := queueOf("name"), queueOf("second")
	waiter.NoPlace, second.NoPlace = true, true
	grant(t, other, "second", time.Minute)
	reqs := []*quorumbatch.Request{{Acquire: &waiter}, {Acquire: &second}}
	notices := noticesOf(t, s)
	for range 3 { // The first time there is no connection for notices yet.
		quorumbatch.Of(s)(t.Context(), reqs)
		for _, r := range reqs {
			if r.Err != nil || !r.Acquired.Queued || r.Acquired.First {
				t.Fatalf("%q: %+v, %v, want it queued", r.Acquire.Name, r.Acquired, r.Err)
			}
		}
		release(t, other, held)
		expect(t, notices, driver.Ask, waiter)
		held = grant(t, other, "name", time.Minute)
	}
	release(t, other, held)
	expect(t, notices, driver.Ask, waiter)
	held = grant(t, other, "name", time.Minute)
	if _, err := other.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: held.Owner, Keep: time.Minute}); err != nil {
		t.Error(err)
	}
	expect(t, notices, driver.Ask, waiter)
	silent(t, notices)
}

// A batch does not wait for one on a connection that hangs.
func TestQuorumBatchBesideOneThatHangs(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	var dialed atomic.Int32
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialed.Add(1) == 1 {
				addr = proxy.Addr()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}})
	defer client.Close()
	s := New(client, nil)
	defer s.Close()
	release(t, s, grant(t, s, "name", time.Minute)) // The connection through the proxy is there.
	proxy.Hold(faultproxy.Down)
	send := func(name string, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		req := request(name, time.Minute)
		r := &quorumbatch.Request{Acquire: &req}
		quorumbatch.Of(s)(ctx, []*quorumbatch.Request{r})
		return r.Err
	}
	hung := make(chan error, 1)
	go func() { hung <- send("first", requestBound-500*time.Millisecond) }()
	eventually(t, "grant", func() bool { return server.Do("EXISTS", "lock:first") == "1" })
	if err := send("second", time.Minute); err != nil {
		t.Errorf("a batch beside one that hangs: %v", err)
	}
	select {
	case err := <-hung:
		t.Error("a batch has waited for one that hangs")
		hung <- err
	default:
	}
	if err := <-hung; err == nil || driver.IsNotApplied(err) {
		t.Errorf("a batch that hangs: %v", err)
	}
}

// Where a batch would harm its requests there is none: in a cluster they would wait for the slowest
// node, a client that exceeds deadlines would hold them up, and a store that embeds a Store would be
// bypassed.
func TestNoQuorumBatch(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true})
	defer cluster.Close() // Nothing is dialed.
	slow := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer slow.Close()
	for what, store := range map[string]driver.Store{
		"a cluster":                              New(cluster, nil),
		"a client without ContextTimeoutEnabled": New(slow, nil),
		"a store that embeds a Store":            struct{ *Store }{open(t, "127.0.0.1:1", nil)},
	} {
		if quorumbatch.Of(store) != nil {
			t.Errorf("%s has batches", what)
		}
	}
}
