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

// Each end of a hold checks and acts in one step: if ReleaseKeep returns nil, no other handle of the
// hold is left and nobody gets the name, whatever happens at the same moment.
func TestReleaseKeepBesideAnotherCall(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	o := &holdfast.Options{Reentrant: true, Detached: true}
	for name, call := range map[string]func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error){
		"join": func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			return c.TryAcquire(context.Background(), lock.Name(), o)
		},
		"HandOver": func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			ticket, err := lock.HandOver()
			if err != nil {
				return nil, err
			}
			return c.Adopt(context.Background(), ticket, nil)
		},
		"Release": func(_ *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			return nil, errors.Join(lock.Release(), holdfast.ErrReleased)
		},
		"ReleaseAll": func(c *holdfast.Client, lock *holdfast.Lock) (*holdfast.Lock, error) {
			return nil, errors.Join(c.ReleaseAll(), holdfast.ErrReleased)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			c, other := open(t, store, nil), open(t, store, nil)
			for i := range rounds {
				lock := acquire(t, c, fmt.Sprint("n", i), o)
				var keepErr, err error
				var second *holdfast.Lock
				atOnce(func() { keepErr = lock.ReleaseKeep(time.Hour) }, func() { second, err = call(c, lock) })
				if keepErr == nil {
					if err == nil && second.Err() == nil {
						t.Fatalf("round %d: the name is kept, and %v is held", i, second)
					}
					if _, err := other.TryAcquire(t.Context(), lock.Name(), nil); !errors.Is(err, holdfast.ErrHeld) {
						t.Fatalf("round %d: the name is kept, and free: %v", i, err)
					}
				} else if second != nil && second.Err() != nil {
					t.Fatalf("round %d: both have failed: %v, %v", i, keepErr, second.Err())
				}
				if second != nil {
					_ = second.Release()
				}
				_ = lock.Release()
			}
		})
	}
}

// A lock is given away once.
func TestHandOverOnce(t *testing.T) {
	store := memstore.New()
	c := open(t, store, nil)
	for i := range 1000 {
		lock := acquire(t, c, fmt.Sprint("n", i), &holdfast.Options{Detached: true})
		var errs [2]error
		hand := func(i int) func() { return func() { _, errs[i] = lock.HandOver() } }
		atOnce(hand(0), hand(1))
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v", i, errs)
		}
	}
}

// A waiter with long pauses makes all its attempts.
func TestManyLongPauses(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Silent()
		lock := acquire(t, open(t, store.Store, nil), "a", &holdfast.Options{TTL: time.Hour})
		_, err := open(t, store, &holdfast.Config{Backoff: holdfast.Backoff{Min: 20 * time.Second}}).Acquire(ctx, "a", &holdfast.Options{MaxAttempts: 60})
		wantErr(t, err, holdfast.ErrHeld)
		if n := store.Calls(faultstore.Acquire); n != 60 {
			t.Errorf("%d attempts, want 60", n)
		}
		release(t, lock)
	})
}

// A release goes on through a long outage, with long pauses.
func TestManyLongPausesOfARelease(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{Backoff: holdfast.Backoff{Min: 20 * time.Second}})
		lock := acquire(t, c, "a", &holdfast.Options{TTL: time.Hour})
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, lock.Release(), holdfast.ErrUnavailable)
		time.Sleep(20 * time.Minute)
		store.Set(faultstore.Release, nil)
		time.Sleep(time.Minute)
		free(t, c, "a")
	})
}

// No duration is too long or too short for the arithmetic: each is used, or refused with ErrInvalid.
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
				t.Run(fmt.Sprint(name, " ", int64(d), " ", silent), func(t *testing.T) {
					virtual(t, func(t *testing.T, ctx context.Context) {
						config, o, store := holdfast.Config{}, holdfast.Options{}, faultstore.Wrap(memstore.New())
						if silent {
							store.Silent()
						}
						set(&config, &o, d)
						c := closedAtLast(t, store, holdfast.New(store, &config))
						useDuration(t, ctx, c, store, &o, d)
					})
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
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			if lock, err := c.Acquire(ctx, "a", o); err == nil {
				_ = lock.Release()
			} else if !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	synctest.Wait()
	if err := lock.Extend(ctx, d); err != nil && !errors.Is(err, holdfast.ErrInvalid) && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	time.Sleep(time.Minute)
	store.Set(faultstore.Acquire, faultstore.Refuse)
	store.Set(faultstore.Release, faultstore.Refuse)
	group.Go(func() {
		time.Sleep(time.Minute)
		store.Set(faultstore.Acquire, nil)
		store.Set(faultstore.Release, nil)
	})
	if err := lock.ReleaseKeep(d); errors.Is(err, holdfast.ErrInvalid) {
		_ = lock.Release()
	}
	group.Wait()
}
