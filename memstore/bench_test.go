package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkPair is an acquire and a release: of a free name, exclusive, and of a name with 1,000
// other holders, shared.
func BenchmarkPair(b *testing.B) {
	b.Run("exclusive", func(b *testing.B) { benchmarkPair(b, New(), 0) })
	b.Run("shared", func(b *testing.B) {
		s := New()
		for i := range 1000 {
			req := pairRequest(fmt.Sprint("reader ", i), driver.Shared)
			if res, err := s.Acquire(b.Context(), req); err != nil || !res.Granted {
				b.Fatal(res, err)
			}
		}
		benchmarkPair(b, s, driver.Shared)
	})
}

func pairRequest(owner string, limit int) driver.AcquireRequest {
	return driver.AcquireRequest{Name: "invoices/42", Owner: owner, Holder: "host/1/abc", TTL: time.Hour, Limit: limit}
}

func benchmarkPair(b *testing.B, s *Store, limit int) {
	defer s.Close()
	req := pairRequest("owner", limit)
	b.ReportAllocs()
	for b.Loop() {
		res, err := s.Acquire(b.Context(), req)
		if err != nil || !res.Granted {
			b.Fatal(res, err)
		}
		released, err := s.Release(b.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err != nil || !released {
			b.Fatal(released, err)
		}
	}
}
