//go:build unix

package redisstore

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A listing goes over all masters, and a batch of renewals as well.
func TestClusterWide(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	s := New(clusterClient(t, cluster), nil)
	defer s.Close()
	var reqs []driver.RenewRequest
	var want []string
	for i := range 200 {
		req := grant(t, s, strconv.Itoa(i), time.Minute)
		reqs = append(reqs, driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: time.Hour})
		want = append(want, req.Name)
	}
	outcomes, err := s.Renew(t.Context(), reqs)
	if err != nil || slices.ContainsFunc(outcomes, func(o driver.RenewOutcome) bool { return o != driver.Renewed }) {
		t.Errorf("Renew: %v, %v", outcomes, err)
	}
	var got []string
	for rec, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("List yields %d names, want %d", len(got), len(want))
	}
}
