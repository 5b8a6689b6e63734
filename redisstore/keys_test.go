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

// The slots of keys, and of the keys beside them, are those that Redis reckons.
func TestSlots(t *testing.T) {
	t.Parallel()
	cluster := servers.StartRedisCluster(t)
	s := New(clusterClient(t, cluster), nil)
	defer s.Close()
	names := []string{"a", "{a}b", "a{b}c{d}", "{}a", "a{}{b}", "a{b", "a}b", "{{a}}", "é{ü}", "日本語", ""}
	for _, name := range names {
		lock := s.lockKey(name)
		tag := s.hashTagOf(lock)
		for _, key := range []string{lock, s.counterKey(tag), s.aheadKey(tag)} {
			want, err := strconv.Atoi(cluster.Masters[0].Do("CLUSTER", "KEYSLOT", key))
			if err != nil {
				t.Fatal(err)
			}
			if got := slotOf(key); int(got) != want || got != slotOf(lock) {
				t.Errorf("the slot of %q is %d, want %d, that of %q", key, got, want, lock)
			}
		}
	}
	seen := map[string]bool{}
	for slot, tag := range slotTags() {
		if slotOf(tag+"x") != uint16(slot) || seen[tag] {
			t.Errorf("the tag of slot %d is %q", slot, tag)
		}
		seen[tag] = true
	}
}

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
