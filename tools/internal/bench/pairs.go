//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// pairs acquires and releases locks in a loop, in several goroutines, until the span is over, and
// returns how many pairs each goroutine completed within it. Each goroutine uses the lock that name
// returns for its index. No pair is interrupted: the one in progress when the span ends is completed
// and does not count.
func pairs(ctx context.Context, l Locker, goroutines int, name func(int) string, span time.Duration) ([]float64, error) {
	var over atomic.Bool
	defer time.AfterFunc(span, func() { over.Store(true) }).Stop()
	counts, errs := make([]float64, goroutines), make([]error, goroutines)
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			for {
				held, err := l.Acquire(ctx, name(i))
				if err == nil {
					err = held.Release(ctx)
				}
				if err != nil {
					errs[i] = fmt.Errorf("%s: %w", name(i), err)
					return
				}
				if over.Load() {
					return
				}
				counts[i]++
			}
		})
	}
	group.Wait()
	return counts, errors.Join(errs...)
}

// holdMany acquires n locks, calls measure while they are held, and releases them.
func holdMany(ctx context.Context, l Locker, n int, measure func() error) error {
	held := make([]Held, n)
	err := forEachParallel(n, func(i int) (err error) {
		held[i], err = l.Acquire(ctx, ownNames(i))
		return err
	})
	if err == nil {
		err = measure()
	}
	return errors.Join(err, forEachParallel(n, func(i int) error {
		if held[i] == nil {
			return nil
		}
		return held[i].Release(ctx)
	}))
}

// forEachParallel calls f for each index below n, in 64 goroutines.
func forEachParallel(n int, f func(i int) error) error {
	const goroutines = 64
	errs := make([]error, n)
	var group sync.WaitGroup
	for first := range goroutines {
		group.Go(func() {
			for i := first; i < n; i += goroutines {
				errs[i] = f(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func ownNames(i int) string { return fmt.Sprint("job/", i) }
func oneName(int) string    { return "job" }

// jain returns Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all shares are equal,
// 1/n if one of n shares is everything, 0 if all are zero.
func jain(shares []float64) float64 {
	var total, squares float64
	for _, share := range shares {
		total += share
		squares += share * share
	}
	if squares == 0 {
		return 0
	}
	return total * total / (float64(len(shares)) * squares)
}
