//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
)

// ownNames gives every goroutine a name that nobody else uses.
func ownNames(g int) string { return fmt.Sprint("job/", g) }

// oneName gives all the same.
func oneName(int) string { return "job" }

// load acquires and releases from many goroutines for a while, and returns how
// often each of them did within it. Nothing is cut short: what is under way at
// the end of that time is carried out, and does not count.
func load(ctx context.Context, c contend.Contender, goroutines int, name func(g int) string, span time.Duration) ([]float64, error) {
	var over atomic.Bool
	end := time.AfterFunc(span, func() { over.Store(true) })
	defer end.Stop()

	counts := make([]float64, goroutines)
	errs := make([]error, goroutines)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() { counts[g], errs[g] = repeat(ctx, c, name(g), &over) })
	}
	group.Wait()
	return counts, errors.Join(errs...)
}

func repeat(ctx context.Context, c contend.Contender, name string, over *atomic.Bool) (float64, error) {
	for n := 0.0; ; n++ {
		held, err := c.Acquire(ctx, name)
		if err != nil {
			return n, fmt.Errorf("acquire %s: %w", name, err)
		}
		if err := held.Release(ctx); err != nil {
			return n, fmt.Errorf("release %s: %w", name, err)
		}
		if over.Load() {
			return n, nil
		}
	}
}

func sum(counts []float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	return total
}
