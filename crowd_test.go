package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A try is answered within a few requests though other goroutines of its Client take
// and release the lock all the time, so that there is always a request under way.
func TestTryInACrowd(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, far(6*ms))
		store.Set(faultstore.Release, far(6*ms))
		var group sync.WaitGroup
		over := time.Now().Add(5 * time.Second)
		for range 8 {
			group.Go(func() {
				for time.Now().Before(over) {
					lock, err := c.Acquire(ctx, "a", nil)
					if err != nil {
						t.Error(err)
						return
					}
					release(t, lock)
				}
			})
		}
		time.Sleep(ms)
		for time.Now().Before(over) {
			began := time.Now()
			lock, err := c.TryAcquire(ctx, "a", nil)
			if lock != nil {
				release(t, lock)
			} else {
				wantErr(t, err, holdfast.ErrHeld)
			}
			if took := time.Since(began); took > 50*ms {
				t.Errorf("a try took %v, where a request takes 6ms", took)
			}
			time.Sleep(ms) // An answer without a request takes no time.
		}
		group.Wait()
	})
}

// A wait that ends in a crowd on a healthy store ends with ErrHeld, whatever request
// is under way at that moment.
func TestWaitInACrowdEndsWithHeld(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{LocalTurn: -1}) // each caller makes requests
		store.Set(faultstore.Acquire, far(20*ms))
		store.Set(faultstore.Release, far(20*ms))
		var all outcomes
		var group sync.WaitGroup
		for i := range 200 {
			group.Go(func() {
				lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second + time.Duration(i)*ms/4})
				all.add(err)
				if lock != nil {
					time.Sleep(ms)
					release(t, lock)
				}
			})
		}
		group.Wait()
		if all.unavailable+all.other > 0 || all.held < 100 {
			t.Errorf("granted %d, held %d, unavailable %d, other %d %v", all.none, all.held, all.unavailable, all.other, all.odd)
		}
	})
}

// While ReleaseAll waits for work under a lock, the lock is held by this Client, for
// attempts and for waiters.
func TestHeldWhileWorkIsAwaited(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, nil)
		go func() {
			_ = c.Do(ctx, "a", nil, func(context.Context) error { time.Sleep(20 * time.Second); return nil })
		}()
		synctest.Wait()
		go func() { _ = c.ReleaseAll() }()
		synctest.Wait()
		began := time.Now()
		_, err := c.TryAcquire(ctx, "a", nil)
		var held *holdfast.HeldError
		if !errors.As(err, &held) || !held.Self || time.Since(began) > 0 {
			t.Errorf("a try: %v after %v", err, time.Since(began))
		}
		_, err = c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second})
		wantErr(t, err, holdfast.ErrHeld)
		release(t, acquire(t, c, "a", nil))
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("acquired after %v", took)
		}
	})
}

// A waiter that has been answered before waits for a server that can serve later,
// beyond the time that the server gives.
func TestRetryErrorAfterAnAnswer(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := acquire(t, open(t, store.Store, nil), "a", nil)
		time.AfterFunc(time.Second, func() {
			serves := time.Now().Add(15 * time.Second)
			store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				if left := time.Until(serves); left > 0 {
					return &driver.RetryError{Err: errors.New("guard"), After: left}
				}
				apply()
				return nil
			})
			release(t, other)
		})
		release(t, acquire(t, c, "a", nil))
	})
}

// Config.MaxOutage is that of each caller, also of those that wait in the queue.
func TestOutageInLine(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		store.Set(faultstore.Release, faultstore.Hang)
		began := time.Now()
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				_, err := c.Acquire(ctx, "a", nil)
				wantErr(t, err, holdfast.ErrUnavailable)
				if took := time.Since(began); took > 23*time.Second {
					t.Errorf("Acquire %d returned after %v", i, took)
				}
			})
		}
		group.Wait()
	})
}

// Waiters do not give up while the store answers, however long it takes until they are
// the head, nor soon after an outage that is over.
func TestNoOutageInLine(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		lock := acquire(t, other, "a", nil)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { release(t, acquire(t, c, "a", nil)) })
		}
		time.Sleep(time.Minute)
		store.Set(faultstore.Acquire, faultstore.Refuse)
		time.Sleep(8 * time.Second)
		store.Set(faultstore.Acquire, nil)
		time.Sleep(time.Minute)
		release(t, lock)
		group.Wait()
	})
}

// AcquireAll that the store has answered rides out a store that refuses, as Acquire
// does.
func TestAcquireAllRidesOutARefusal(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := acquire(t, open(t, store.Store, nil), "a", nil)
		time.AfterFunc(time.Second, func() {
			store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				apply() // a is granted, then the server restarts
				store.Set(faultstore.Acquire, faultstore.Refuse)
				time.AfterFunc(2*time.Second, func() { store.Set(faultstore.Acquire, nil) })
				return nil
			})
			release(t, other)
		})
		set, err := c.AcquireAll(ctx, []string{"a", "b"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Release(); err != nil {
			t.Error(err)
		}
	})
}

// The same of many Clients, with short waits, on each kind of store.
func TestWaitsOfClientsEndWithHeld(t *testing.T) {
	for name, kind := range map[string]func(*faultstore.Store) *faultstore.Store{
		"queue":      func(s *faultstore.Store) *faultstore.Store { return s },
		"no queue":   (*faultstore.Store).Unfair,
		"no notices": (*faultstore.Store).Silent,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				memory := memstore.New()
				var all outcomes
				var group sync.WaitGroup
				end := time.Now().Add(20 * time.Second)
				for range 10 {
					store := kind(faultstore.Wrap(memory))
					for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
						store.Set(op, far(4*ms))
					}
					c := open(t, store, nil)
					group.Go(func() {
						for time.Now().Before(end) {
							lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Duration(50+rand.IntN(200)) * ms})
							if all.add(err); err != nil {
								wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
								continue
							}
							time.Sleep(time.Duration(rand.IntN(150)) * ms)
							release(t, lock)
						}
					})
				}
				group.Wait()
				if all.held == 0 || all.none == 0 {
					t.Errorf("granted %d, held %d", all.none, all.held)
				}
			})
		})
	}
}

// Sixteen goroutines that take one name again and again, in one Client and in a Client each, get the
// same share of it, under tokens that rise.
func TestSharesAreFair(t *testing.T) {
	for clients, name := range map[int]string{1: "one Client", 16: "a Client each"} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				var shares [16]float64
				var last int64
				var c *holdfast.Client
				var group sync.WaitGroup
				over := time.Now().Add(10 * time.Second)
				for i := range shares {
					if i < clients {
						c = open(t, store, nil)
					}
					c := c
					group.Go(func() {
						for time.Now().Before(over) {
							lock, err := c.Acquire(ctx, "a", nil)
							if err != nil {
								t.Error(err)
								return
							}
							if shares[i]++; lock.Token() <= last {
								t.Errorf("the token %d after %d", lock.Token(), last)
							}
							last = lock.Token()
							time.Sleep(ms)
							release(t, lock)
						}
					})
				}
				group.Wait()
				var sum, squares float64
				for _, share := range shares {
					sum, squares = sum+share, squares+share*share
				}
				if jain := sum * sum / (16 * squares); jain < 0.99 || sum < 1000 {
					t.Errorf("%v holds, Jain's index %.3f: %v", sum, jain, shares)
				}
			})
		})
	}
}

// A try whose request was lost on the way finds that out by one look, and ends within the time of two
// requests, whatever other callers are answered meanwhile.
func TestTryHasOneLook(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{RequestTimeout: time.Second})
		var group sync.WaitGroup
		store.Set(faultstore.Acquire, faultstore.Hang)
		store.Set(faultstore.Renew, func(context.Context, faultstore.Op, func()) error {
			time.Sleep(700 * ms)
			return errors.New("connection reset")
		})
		for range 5 {
			group.Go(func() {
				began := time.Now()
				_, err := c.TryAcquire(ctx, "a", &holdfast.Options{Limit: 9})
				wantErr(t, err, holdfast.ErrUnavailable)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("a try took %v", took)
				}
			})
			time.Sleep(300 * ms)
		}
		group.Wait()
	})
}
