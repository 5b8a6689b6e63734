package storetest_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/storecheck"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// TestSets takes as many half seconds as HOLDFAST_ROUNDS says.
func TestSets(t *testing.T) {
	d := time.Duration(storetest.Rounds(t, 1)) * time.Second / 2
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		n := storecheck.Sets(t, d, s.Replicas(t, 3)...)
		if n == 0 {
			t.Error("no set was acquired")
		}
		t.Logf("%d sets", n)
	})
}
