//go:build unix

package pgstore

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkPair is an acquire and a release of a free name, by one goroutine, without a disk.
func BenchmarkPair(b *testing.B) {
	s := open(b)
	req := request("name", time.Minute)
	for b.Loop() {
		if res, err := s.Acquire(b.Context(), req); err != nil || !res.Granted {
			b.Fatal(res, err)
		}
		if ended, err := s.Release(b.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil || !ended {
			b.Fatal(ended, err)
		}
	}
}
