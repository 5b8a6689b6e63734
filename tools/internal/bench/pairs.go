//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// pairs acquires and releases locks in a loop, in several goroutines, until the span is over, and
// returns how many pairs each goroutine completed within it. Each goroutine uses the lock that name
// returns for its index. No pair is interrupted: the one in progress when the span ends is
// completed and does not count.
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

// handOvers passes a lock from one client to the other and back. It returns for each time how long
// the lock was idle: from the call that releases it to the moment at which the other client has it.
// A waiter waits for a random time before: long enough to settle, and so that one that polls is met
// at any point between two polls.
func handOvers(ctx context.Context, holder, waiter Locker, count int) ([]time.Duration, error) {
	held, err := holder.Acquire(ctx, oneName(0))
	if err != nil {
		return nil, err
	}
	const warmUps = 2
	var idle []time.Duration
	for i := range warmUps + count {
		var next Held
		var at time.Time
		var waitErr error
		acquired := make(chan struct{})
		go func() {
			defer close(acquired)
			next, waitErr = waiter.Acquire(ctx, oneName(0))
			at = time.Now()
		}()
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		released := time.Now()
		err := held.Release(ctx)
		if <-acquired; err != nil || waitErr != nil {
			return nil, errors.Join(err, waitErr)
		}
		if i >= warmUps {
			idle = append(idle, at.Sub(released))
		}
		held, holder, waiter = next, waiter, holder
	}
	return idle, held.Release(ctx)
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
