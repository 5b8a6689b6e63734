//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// clients opens n clients of a cluster by its URL.
func clients(t *testing.T, cluster []*servers.Etcd, n int) (all []*holdfast.Client) {
	t.Helper()
	for i := range n {
		url := "etcd://" + strings.Join(servers.EtcdAddrs(cluster), ",")
		c, err := holdfast.Open(t.Context(), url, &holdfast.Config{Holder: fmt.Sprint("replica ", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, c)
	}
	return all
}

// A leader that resigns is followed by another, under a greater token. The death of the member that
// leads the cluster ends no term.
func TestElection(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3)
	elected, deposed := make(chan election.Term, 16), make(chan error, 16)
	ctx, cancel := context.WithCancel(t.Context())
	candidates, ended := map[string]*election.Election{}, make(chan error, 2)
	for _, c := range clients(t, cluster, 2) {
		e := election.New(c, "office", &election.Options{
			TTL: 10 * time.Second, ResignDelay: time.Minute, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Deposed: func(_ election.Term, reason error) { deposed <- reason },
		})
		candidates[c.Holder()] = e
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, term election.Term) error {
				elected <- term // From here on Resign ends the term.
				<-ctx.Done()
				return ctx.Err()
			})
		}()
	}
	first := receive(t, elected)
	if err := candidates[first.Leader].Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if reason := receive(t, deposed); !errors.Is(reason, election.ErrResigned) {
		t.Errorf("deposed: %v", reason)
	}
	second := receive(t, elected)
	if second.Leader == first.Leader || second.Token <= first.Token {
		t.Errorf("%+v follows %+v", second, first)
	}
	for _, m := range cluster {
		if m.Leads() {
			m.Kill()
			break
		}
	}
	select {
	case reason := <-deposed:
		t.Errorf("the term ended: %v", reason)
	case <-time.After(12 * time.Second): // longer than the TTL
	}
	if _, leads := candidates[second.Leader].Leading(); !leads {
		t.Error("the second leader does not lead")
	}
	cancel()
	for range candidates {
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}
}

func testRecipes(t *testing.T, member *servers.Etcd) {
	all := clients(t, []*servers.Etcd{member}, 3)
	work := func(context.Context) error { return nil }
	for i, want := range []once.Verdict{once.Ran, once.Done, once.Done} {
		if res, err := once.Within(t.Context(), all[i], "backup", time.Hour, nil, work); err != nil || res.Verdict != want {
			t.Errorf("once: %v, %v, want %v", res, err, want)
		}
		err := ratelimit.New(all[i], 1, time.Hour).Take(t.Context(), "mail")
		if limit := (*ratelimit.LimitError)(nil); i == 0 && err != nil || i > 0 && !errors.As(err, &limit) {
			t.Errorf("call %d of one in an hour: %v", i+1, err)
		}
	}
}

// A quorum of clusters has the grain of its nodes, and works without one of three.
func TestQuorum(t *testing.T) {
	t.Parallel()
	var nodes []driver.Store
	var members []*servers.Etcd
	for range 3 {
		m := servers.StartEtcd(t)
		members, nodes = append(members, m), append(nodes, open(t, m))
	}
	quorum := holdfast.New(quorumstore.New(nodes, nil), nil)
	defer quorum.Close()
	if g := quorum.Guarantees(); g.Grain != grain || !g.Fencing {
		t.Errorf("the guarantees of the quorum are %+v", g)
	}
	lock, err := quorum.Acquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	members[0].Kill()
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	next, err := quorum.Acquire(t.Context(), "name", nil)
	if err != nil || next.Token() <= lock.Token() {
		t.Fatalf("token %d after %d: %v", next.Token(), lock.Token(), err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
}
