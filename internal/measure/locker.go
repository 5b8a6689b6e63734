//go:build unix

package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A Locker is a library that locks, open in one process. Its methods may be called by several
// goroutines at once.
type Locker interface {
	// Acquire blocks until it holds the lock, or until ctx ends.
	Acquire(ctx context.Context, name string) (Held, error)

	Close() error
}

// Held is a lock that was acquired.
type Held interface {
	Release(ctx context.Context) error
}

// An Extender is a Held with a TTL that can be extended.
type Extender interface {
	Held
	Extend(ctx context.Context, ttl time.Duration) error
}

// NewLocker returns a Locker that acquires the locks of a client. Its Close closes the client.
func NewLocker(client *holdfast.Client) Locker { return clientLocker{client} }

type clientLocker struct{ *holdfast.Client }

func (l clientLocker) Acquire(ctx context.Context, name string) (Held, error) {
	lock, err := l.Client.Acquire(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return clientHeld{lock}, nil
}

type clientHeld struct{ *holdfast.Lock }

func (h clientHeld) Release(context.Context) error { return h.Lock.Release() }

// SameName returns the name for every goroutine: the goroutines contend for one lock.
func SameName(name string) func(int) string { return func(int) string { return name } }

// OwnNames returns a different name for each goroutine.
func OwnNames(prefix string) func(int) string {
	return func(i int) string { return fmt.Sprint(prefix, "/", i) }
}

// Pairs acquires and releases locks in a loop, in several goroutines, until the span is over.
// Each goroutine uses the lock that name returns for its index. Pairs returns how many pairs of
// acquire and release each goroutine completed within the span. No pair is interrupted: the one
// in progress when the span ends is completed and does not count.
//
// If record is not nil, it is called with the index of the goroutine and the times of each pair
// that counts. Without it no time is measured.
func Pairs(ctx context.Context, l Locker, goroutines int, name func(int) string, span time.Duration,
	record func(i int, acquire, release time.Duration),
) ([]float64, error) {
	var over atomic.Bool
	defer time.AfterFunc(span, func() { over.Store(true) }).Stop()
	counts := make([]float64, goroutines)
	errs := make([]error, goroutines)
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() { counts[i], errs[i] = repeatPair(ctx, l, i, name(i), &over, record) })
	}
	group.Wait()
	return counts, errors.Join(errs...)
}

func repeatPair(ctx context.Context, l Locker, i int, name string, over *atomic.Bool,
	record func(i int, acquire, release time.Duration),
) (float64, error) {
	var began, acquired time.Time
	for count := 0.0; ; count++ {
		if record != nil {
			began = time.Now()
		}
		held, err := l.Acquire(ctx, name)
		if err != nil {
			return count, fmt.Errorf("acquire %s: %w", name, err)
		}
		if record != nil {
			acquired = time.Now()
		}
		if err := held.Release(ctx); err != nil {
			return count, fmt.Errorf("release %s: %w", name, err)
		}
		if over.Load() {
			return count, nil
		}
		if record != nil {
			record(i, acquired.Sub(began), time.Since(acquired))
		}
	}
}

// HoldMany acquires n locks, calls measure while they are held, and releases them.
func HoldMany(ctx context.Context, l Locker, n int, name func(int) string, measure func() error) error {
	held := make([]Held, n)
	err := forEachParallel(n, func(i int) (err error) {
		held[i], err = l.Acquire(ctx, name(i))
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
