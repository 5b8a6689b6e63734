package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// atOnce calls all functions at the same moment, and returns when they have returned.
func atOnce(calls ...func()) {
	start := make(chan struct{})
	var group sync.WaitGroup
	for _, call := range calls {
		group.Go(func() { <-start; call() })
	}
	close(start)
	group.Wait()
}

// Each end of a hold checks and acts in one step: of two calls at the same moment that give a hold
// away, or keep its name, one has succeeded, and no other handle of the hold is left then.
func TestTwoEndsAtOnce(t *testing.T) {
	const rounds = 2000
	o := &holdfast.Options{Reentrant: true, Detached: true}
	keep := func(_ *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
		return nil, lock.ReleaseKeep(time.Hour)
	}
	hand := func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
		ticket, err := lock.HandOver()
		if err != nil {
			return nil, err
		}
		return c.Adopt(context.Background(), ticket, nil)
	}
	type call func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error)
	for name, calls := range map[string][2]call{
		"keep, join": {keep, func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			return c.TryAcquire(context.Background(), lock.Name(), o)
		}},
		"keep, HandOver": {keep, hand},
		"keep, Release": {keep, func(_ *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			return nil, errors.Join(lock.Release(), holdfast.ErrReleased)
		}},
		"keep, ReleaseAll": {keep, func(c *holdfast.Client, _ *holdfast.Lock) (*holdfast.Lock, error) {
			return nil, errors.Join(c.ReleaseAll(), holdfast.ErrReleased)
		}},
		"HandOver twice": {hand, hand},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			c, other := open(t, store, nil), open(t, store, nil)
			for i := range rounds {
				lock := acquire(t, c, fmt.Sprint("n", i), o)
				var errs [2]error
				var locks [2]*holdfast.Lock
				run := func(i int) func() { return func() { locks[i], errs[i] = calls[i](c, lock) } }
				atOnce(run(0), run(1))
				switch kept := errs[0] == nil && locks[0] == nil; {
				case errs[0] == nil && errs[1] == nil && (locks[1] == nil || locks[1].Err() == nil):
					t.Fatalf("round %d: both have succeeded", i)
				case name == "HandOver twice" && errs[0] != nil && errs[1] != nil,
					errs[0] != nil && locks[1] != nil && locks[1].Err() != nil:
					t.Fatalf("round %d: both have failed: %v", i, errs)
				case kept && !errors.Is(failure(other.TryAcquire(t.Context(), lock.Name(), nil)), holdfast.ErrHeld):
					t.Fatalf("round %d: the name is kept, and free", i)
				}
				for _, l := range append(locks[:], lock) {
					if l != nil {
						_ = l.Release()
					}
				}
			}
		})
	}
}

// A handle that was released hands nothing over, also at the same moment.
func TestHandOverBesideRelease(t *testing.T) {
	c := open(t, memstore.New(), nil)
	o := &holdfast.Options{Detached: true, Reentrant: true}
	for range 2000 {
		a, b := acquire(t, c, "a", o), acquire(t, c, "a", o)
		var err error
		atOnce(func() { err = failure(a.HandOver()) }, func() { _ = a.Release() })
		if err == nil {
			t.Fatal("a handle handed over the lock of another")
		}
		release(t, b)
	}
}

// No duration is too long or too short for the arithmetic: each is used, or refused with
// ErrInvalid.
func TestDurationsOfAllSizes(t *testing.T) {
	sizes := []time.Duration{math.MinInt64, -1, 1, driver.MinTTL, driver.MaxTTL, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64}
	for name, set := range map[string]func(*holdfast.Config, *holdfast.Options, time.Duration){
		"TTL":            func(_ *holdfast.Config, o *holdfast.Options, d time.Duration) { o.TTL = d },
		"Wait":           func(_ *holdfast.Config, o *holdfast.Options, d time.Duration) { o.Wait = d },
		"MaxHold":        func(_ *holdfast.Config, o *holdfast.Options, d time.Duration) { o.MaxHold = d },
		"Config.TTL":     func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.TTL = d },
		"RequestTimeout": func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.RequestTimeout = d },
		"MaxOutage":      func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.MaxOutage = d },
		"LocalTurn":      func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.LocalTurn = d },
		"Backoff.Min":    func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.Backoff.Min = d },
		"Backoff.Max":    func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.Backoff.Max = d },
		"both":           func(c *holdfast.Config, _ *holdfast.Options, d time.Duration) { c.Backoff.Min, c.Backoff.Max = d, d },
	} {
		for _, d := range sizes {
			for _, silent := range []bool{false, true} {
				virtualRun(t, fmt.Sprint(name, " ", int64(d), " ", silent), func(t *testing.T, ctx context.Context) {
					config, o, store := holdfast.Config{}, holdfast.Options{}, faultstore.Wrap(memstore.New())
					if silent {
						store.Silent()
					}
					set(&config, &o, d)
					useDuration(t, ctx, closedAtLast(t, store, holdfast.New(store, &config)), store, &o, d)
				})
			}
		}
	}
}

// useDuration acquires, waits, extends and releases, in an outage too.
func useDuration(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store, o *holdfast.Options, d time.Duration) {
	lock, err := c.Acquire(ctx, "a", o)
	if err != nil {
		if !errors.Is(err, holdfast.ErrInvalid) && (d <= 0 || d >= driver.MinTTL) {
			t.Errorf("Acquire: %v", err)
		}
		return
	}
	noErr(t, lock.Err())
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if lock, err := c.Acquire(ctx, "a", o); err == nil {
				_ = lock.Release()
			} else if !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	synctest.Wait()
	err = lock.Extend(ctx, d)
	if err != nil && !errors.Is(err, holdfast.ErrInvalid) && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	time.Sleep(time.Minute)
	store.Set(faultstore.Acquire, faultstore.Refuse)
	store.Set(faultstore.Release, faultstore.Refuse)
	time.AfterFunc(time.Minute, func() { setAll(store, nil) })
	if err := lock.ReleaseKeep(d); errors.Is(err, holdfast.ErrInvalid) {
		_ = lock.Release()
	}
	group.Wait()
}
