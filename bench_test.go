package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// An uncontended acquire and release.
func BenchmarkPair(b *testing.B) { benchmarkPair(b, nil) }

// The same with hooks that do nothing.
func BenchmarkPairWithHooks(b *testing.B) {
	benchmarkPair(b, &holdfast.Config{Hooks: holdfast.Hooks{
		Start: func(ctx context.Context, _ holdfast.Start) context.Context { return ctx },
		Event: func(context.Context, holdfast.Event) {},
	}})
}

func benchmarkPair(b *testing.B, config *holdfast.Config) {
	for kind, store := range localStores {
		b.Run(kind, func(b *testing.B) {
			c := holdfast.New(store(b), config)
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
