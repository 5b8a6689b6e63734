package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// An uncontended acquire and release.
func BenchmarkPair(b *testing.B) {
	for kind, store := range localStores {
		b.Run(kind, func(b *testing.B) {
			c := holdfast.New(store(b), nil)
			defer c.Close()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				lock, err := c.Acquire(ctx, "invoices/42", nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
