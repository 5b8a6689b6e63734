//go:build unix

package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumnode"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// Each request of a batch has its own outcome, on a single server and in a cluster.
func TestQuorumBatch(t *testing.T) {
	t.Parallel()
	cluster := New(clusterClient(t, servers.StartRedisCluster(t)), nil)
	t.Cleanup(func() { _ = cluster.Close() })
	for _, s := range []*Store{open(t, servers.StartRedis(t).Addr, nil), cluster} {
		held := grant(t, s, "held", time.Minute)
		ours := grant(t, s, "ours", time.Minute)
		free, busy, ahead, noOwner := request("free", time.Minute), request("held", time.Minute), request("ahead", time.Minute), request("bad", time.Minute)
		ahead.Floor, noOwner.Owner = time.Now().Add(2*driver.MaxLead).UnixMicro(), ""
		reqs := []*quorumnode.Request{
			{Acquire: &free},
			{Acquire: &busy},
			{Acquire: &ahead},
			{Acquire: &noOwner},
			{Release: driver.ReleaseRequest{Name: ours.Name, Owner: ours.Owner}},
			{Release: driver.ReleaseRequest{Name: held.Name, Owner: ours.Owner}},
		}
		quorumnode.Of(s)(t.Context(), reqs)
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
		release(t, s, held)
		release(t, s, free)
	}

	closed := open(t, servers.StartRedis(t).Addr, nil)
	_ = closed.Close()
	r := &quorumnode.Request{Release: driver.ReleaseRequest{Name: "name", Owner: "owner"}}
	if quorumnode.Of(closed)(t.Context(), []*quorumnode.Request{r}); !errors.Is(r.Err, driver.ErrClosed) {
		t.Errorf("a closed store: %v", r.Err)
	}
}

// A store that embeds a Store gets each request itself.
func TestQuorumBatchOfAnEmbeddingStore(t *testing.T) {
	t.Parallel()
	s := open(t, "127.0.0.1:1", nil) // Nothing is dialed.
	if quorumnode.Of(struct{ *Store }{s}) != nil {
		t.Error("a batch would bypass the methods of a store that embeds this one")
	}
}
