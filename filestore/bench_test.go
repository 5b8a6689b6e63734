package filestore

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// BenchmarkPair is an acquire and a release of a free name.
func BenchmarkPair(b *testing.B) {
	s, err := New(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	req := driver.Request{Name: "invoices/42", Owner: "owner", Holder: "host/1/abc", TTL: 30 * time.Second}
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

// BenchmarkCrowd is a look at the last of many places.
func BenchmarkCrowd(b *testing.B) {
	s, err := New(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	req := driver.Request{Name: "invoices/42", Holder: "host/1/abc", TTL: time.Hour, Place: time.Hour}
	for i := range 300 {
		req.Owner = fmt.Sprint("owner", i)
		if _, err := s.Acquire(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		renewal := []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Hour}}
		if now, err := s.Renew(b.Context(), renewal); err != nil || now[0].State != driver.Waiting {
			b.Fatal(now, err)
		}
	}
}

// BenchmarkHandOver is a release and a new place of one of two Stores, until the other one has the
// name.
func BenchmarkHandOver(b *testing.B) {
	dir := b.TempDir()
	var stores [2]*Store
	var turns [2]<-chan time.Time
	var reqs [2]driver.Request
	for i := range stores {
		stores[i] = openTest(b, dir)
		reqs[i] = driver.Request{Name: "name", Owner: fmt.Sprint("owner", i), TTL: time.Hour, Place: time.Hour}
		turns[i] = told(b, stores[i], reqs[i].Owner)
		if _, err := stores[i].Acquire(b.Context(), reqs[i]); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i = 1 - i {
		released(b, stores[i], reqs[i])
		<-turns[1-i]
		now, err := stores[1-i].Renew(b.Context(), []driver.RenewRequest{{Name: "name", Owner: reqs[1-i].Owner, TTL: time.Hour}})
		if err != nil || now[0].State != driver.Held {
			b.Fatal(now, err)
		}
		if _, err := stores[i].Acquire(b.Context(), reqs[i]); err != nil {
			b.Fatal(err)
		}
	}
}
