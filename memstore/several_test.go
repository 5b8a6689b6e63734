package memstore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A grant has as many tokens as requested, up to MaxTokens.
func TestSeveralTokens(t *testing.T) {
	s := New()
	defer s.Close()
	for requested, want := range map[int]int{0: 1, 1: 1, 2: 2, driver.MaxTokens: driver.MaxTokens, driver.MaxTokens + 1: driver.MaxTokens} {
		req := driver.AcquireRequest{Name: "name", Owner: "o", Holder: "h", TTL: time.Minute, Tokens: requested}
		res, err := s.Acquire(t.Context(), req)
		if err != nil || !res.Granted || res.Tokens != want {
			t.Errorf("%d tokens requested: %+v, %v, want %d", requested, res, err, want)
		}
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "o"}); err != nil {
			t.Error(err)
		}
	}
}
