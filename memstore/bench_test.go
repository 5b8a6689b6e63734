package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkPair is an acquire and a release: of a free name; of a name with 1,000 other holders,
// shared; and of a place behind a hold and 10,000 places.
func BenchmarkPair(b *testing.B) {
	b.Run("exclusive", func(b *testing.B) { benchmarkPair(b, 0, 0) })
	b.Run("shared", func(b *testing.B) { benchmarkPair(b, 1000, driver.Shared) })
	b.Run("waiting", func(b *testing.B) { benchmarkPair(b, 10_001, 0) })
}

func benchmarkPair(b *testing.B, others, limit int) {
	s := New()
	defer s.Close()
	req := driver.Request{Name: "invoices/42", Owner: "owner", Holder: "host/1/abc", Limit: limit}
	req.TTL, req.Place = time.Hour, time.Hour
	for i := range others {
		other := req
		other.Owner = fmt.Sprint("other ", i)
		if _, err := s.Acquire(b.Context(), other); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		res, err := s.Acquire(b.Context(), req)
		if err != nil || res.Granted != (others == 0 || limit > 1) {
			b.Fatal(res, err)
		}
		released, err := s.Release(b.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err != nil || !released {
			b.Fatal(released, err)
		}
	}
}
