package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestClose(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := holdfast.New(store, nil), open(t, store, nil)
		lock := acquire(t, c, "a", nil)
		acquire(t, other, "b", nil)
		var group sync.WaitGroup
		for _, name := range []string{"a", "b", "b"} { // a waiter, a head, a waiter
			group.Go(func() {
				_, err := c.Acquire(ctx, name, nil)
				wantErr(t, err, holdfast.ErrClosed)
			})
		}
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		group.Wait()
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrReleased)
		release(t, lock) // harmless after Close
		free(t, other, "a")
		_, err := c.Acquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrClosed)
		_, err = c.Lookup(ctx, "a")
		wantErr(t, err, holdfast.ErrClosed)
		for _, err := range c.List(ctx, "") {
			wantErr(t, err, holdfast.ErrClosed)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

func TestReleaseAll(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		var locks []*holdfast.Lock
		for i := range 300 {
			locks = append(locks, acquire(t, c, fmt.Sprint(i), nil))
		}
		if err := c.ReleaseAll(); err != nil {
			t.Errorf("ReleaseAll: %v", err)
		}
		for _, lock := range locks {
			wantErr(t, lock.Err(), holdfast.ErrReleased)
		}
		for rec, err := range c.List(ctx, "") {
			t.Errorf("left behind: %+v, %v", rec, err)
		}
		acquire(t, c, "1", nil)
	})
}

// All work has ended before the first lock is free.
func TestReleaseAllEndsTheWorkFirst(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		var locks []*holdfast.Lock
		for i := range 200 {
			locks = append(locks, acquire(t, c, fmt.Sprint(i), nil))
		}
		store.Set(faultstore.Release, func(_ context.Context, _ faultstore.Op, apply func()) error {
			for _, lock := range locks {
				if lock.Err() == nil {
					t.Error("a lock is released while another is still relied on")
				}
			}
			apply()
			return nil
		})
		if err := c.ReleaseAll(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseOfAHungStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := holdfast.New(store, nil)
		acquire(t, c, "a", nil)
		store.Set(faultstore.Release, faultstore.Hang)
		store.Set(faultstore.Acquire, faultstore.Hang)
		go c.Acquire(ctx, "b", nil)
		synctest.Wait()
		began := time.Now()
		wantErr(t, c.Close(), holdfast.ErrUnavailable)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A lock that is granted when Close has begun is nobody's.
func TestGrantedDuringClose(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c, other := holdfast.New(store, nil), open(t, store.Store, nil)
		acquire(t, c, "x", nil) // so that its goroutine runs
		store.Set(faultstore.Acquire, far(time.Second))
		failed := make(chan error)
		go func() {
			_, err := c.Acquire(ctx, "a", nil)
			failed <- err
		}()
		synctest.Wait()
		go c.Close()
		wantErr(t, <-failed, holdfast.ErrClosed)
		synctest.Wait()
		free(t, other, "a")
	})
}

// Requests that their callers no longer wait for have ended when Close returns.
func TestCloseAwaitsAbandonedRequests(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := holdfast.New(store, nil)
		lock := acquire(t, c, "a", nil)
		store.Set(faultstore.Renew, faultstore.Hang)
		store.Set(faultstore.Lookup, faultstore.Hang)
		limited, cancel := context.WithTimeout(ctx, 50*ms)
		defer cancel()
		wantErr(t, lock.Extend(limited, time.Minute), context.DeadlineExceeded)
		_, err := c.Lookup(limited, "a")
		wantErr(t, err, context.DeadlineExceeded)
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}) // fails if a goroutine is left
}
