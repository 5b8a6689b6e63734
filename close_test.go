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

// Close ends waits and holds, and leaves neither a hold nor a place behind.
func TestClose(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := holdfast.New(store, nil), open(t, store, nil)
		lock := acquire(t, c, "a", nil)
		acquire(t, other, "b", nil)
		var ended []<-chan error
		for _, name := range []string{"a", "b", "b"} { // a waiter, a head, a waiter
			ended = append(ended, later(func() error { return failure(c.Acquire(ctx, name, nil)) }))
		}
		ended = append(ended, later(func() error { return failure(c.AcquireAll(ctx, []string{"1", "b"}, nil)) }))
		noErr(t, c.Close())
		for _, e := range ended {
			wantErr(t, <-e, holdfast.ErrClosed)
		}
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrReleased)
		release(t, lock) // harmless after Close
		free(t, other, "a", "1")
		if rec := lookup(t, other, "b"); rec.Waiting != 0 {
			t.Errorf("%d places are left", rec.Waiting)
		}
		for _, err := range []error{failure(c.Acquire(ctx, "a", nil)), failure(c.Lookup(ctx, "a")), firstError(ctx, c)} {
			wantErr(t, err, holdfast.ErrClosed)
		}
		noErr(t, c.Close())
	})
}

// All work has ended before the first lock is free.
func TestReleaseAll(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		var locks []*holdfast.Lock
		for i := range 300 {
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
		noErr(t, c.ReleaseAll())
		for _, lock := range locks {
			wantErr(t, lock.Err(), holdfast.ErrReleased)
		}
		for rec, err := range c.List(ctx, "") {
			t.Errorf("left behind: %+v, %v", rec, err)
		}

		// It waits for a release by another call.
		lock := acquire(t, c, "1", nil)
		store.Set(faultstore.Release, far(time.Second))
		go lock.Release()
		synctest.Wait()
		noErr(t, within(t, time.Second, time.Second, c.ReleaseAll))
	})
}

func TestCloseOfAHungStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := holdfast.New(store, nil)
		acquire(t, c, "a", nil)
		setAll(store, faultstore.Hang)
		ended := later(func() error { return failure(c.Acquire(ctx, "b", nil)) })
		wantErr(t, within(t, 0, 10*time.Second, c.Close), holdfast.ErrUnavailable)
		<-ended
	})
}

// Close and ReleaseAll release other locks at once, wait for the work under a lock until the lock's
// deadline and no longer, and renew nothing meanwhile. An Extend that is under way moves no
// deadline.
func TestCloseWaitsForWorkUntilTheDeadline(t *testing.T) {
	for name, end := range endings {
		for _, length := range []time.Duration{5 * time.Second, time.Hour} {
			virtualRun(t, name+"/"+length.String(), func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				other := open(t, store.Store, nil)
				acquire(t, c, "idle", nil)
				result := later(func() error {
					return c.DoAll(ctx, []string{"a", "b"}, nil, func(context.Context) error {
						time.Sleep(length) // without regard to its context
						return nil
					})
				})
				store.Set(faultstore.Renew, far(time.Second))
				extended := later(func() error { return c.Locks()[0].Extend(ctx, 30*time.Minute) })
				want := min(length, 30*time.Second-302*ms)
				var group sync.WaitGroup
				group.Go(func() { noErr(t, within(t, want, want+ms, func() error { return end(c) })) })
				synctest.Wait()
				for name, want := range map[string]time.Duration{"idle": 0, "a": want} {
					group.Go(func() {
						noErr(t, within(t, want, want+ms, func() error { return failure(other.Acquire(ctx, name, nil)) }))
					})
				}
				group.Wait()
				wantErr(t, <-result, holdfast.ErrReleased)
				<-extended
			})
		}
	}
}

// A grant whose release is refused is not left behind, and no lock is requested after Close has
// begun.
func TestGrantedBesideClose(t *testing.T) {
	virtualRun(t, "in flight", func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		net := faultstore.Wrap(mem)
		a, b := open(t, mem, nil), holdfast.New(net, nil)
		net.Set(faultstore.Acquire, answersIn(time.Second))
		result := later(func() error { return failure(b.Acquire(ctx, "n", &holdfast.Options{TTL: time.Hour})) })
		net.Once(faultstore.Release, faultstore.Refuse)
		noErr(t, b.Close())
		wantErr(t, <-result, holdfast.ErrClosed)
		free(t, a, "n")
	})
	virtualRun(t, "to be confirmed", func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		net := faultstore.Wrap(mem)
		a, b := open(t, mem, nil), holdfast.New(net, nil)
		first := acquire(t, a, "n", nil)
		o := &holdfast.Options{TTL: time.Hour, Detached: true, Shared: true}
		result := later(func() error { return failure(b.Acquire(ctx, "n", o)) })
		net.Set(faultstore.Renew, answersIn(time.Second))
		release(t, first) // Its notice has come, and the renewal that confirms it is under way.
		synctest.Wait()
		sent := net.Calls(faultstore.Acquire)
		net.Once(faultstore.Release, faultstore.Refuse)
		noErr(t, b.Close())
		wantErr(t, <-result, holdfast.ErrClosed)
		if n := net.Calls(faultstore.Acquire) - sent; n > 0 {
			t.Errorf("%d requests for a lock after Close has begun", n)
		}
		free(t, a, "n")
	})
}

// endings are the calls that end all locks of a Client.
var endings = map[string]func(*holdfast.Client) error{
	"Close": (*holdfast.Client).Close, "ReleaseAll": (*holdfast.Client).ReleaseAll,
}

// While Close or ReleaseAll waits for work, nothing but the end of that work frees its locks: no
// Release, and no second Do. The lock is no longer in Locks, but held by this Client for attempts
// and waiters, and nothing joins its hold.
func TestNothingFreesALockUnderWork(t *testing.T) {
	type locked interface {
		Do(context.Context, func(context.Context) error) error
		Release() error
	}
	for ending, end := range endings {
		for name, acquire := range map[string]func(ctx context.Context, c *holdfast.Client) (locked, error){
			"lock": func(ctx context.Context, c *holdfast.Client) (locked, error) {
				return c.Acquire(ctx, "a", &holdfast.Options{Reentrant: true})
			},
			"set": func(ctx context.Context, c *holdfast.Client) (locked, error) {
				return c.AcquireAll(ctx, []string{"a", "b"}, nil)
			},
		} {
			virtualRun(t, ending+"/"+name, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				c, other := open(t, store, nil), open(t, store, nil)
				lock, err := acquire(ctx, c)
				noErr(t, err)
				done := later(func() error {
					return lock.Do(ctx, func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(2 * time.Second) // it cleans up
						return nil
					})
				})
				ended := later(func() error { return end(c) })
				wantErr(t, lock.Do(ctx, nothing), holdfast.ErrInvalid)
				noErr(t, lock.Release())
				noErr(t, lock.Release()) // as a deferred call
				if locks := c.Locks(); len(locks) > 0 {
					t.Errorf("locks of the Client: %v", locks)
				}
				if ending == "ReleaseAll" {
					if err := failure(c.TryAcquire(ctx, "a", nil)); !heldError(t, err).Self {
						t.Errorf("a try: %v", err)
					}
					wantErr(t, failure(c.Acquire(ctx, "a", &holdfast.Options{Wait: ms})), holdfast.ErrHeld)
				}
				joined := later(func() error { return c.Do(ctx, "a", &holdfast.Options{Reentrant: true}, nothing) })
				time.Sleep(2*time.Second - 2*ms)
				wantErr(t, failure(other.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
				time.Sleep(2 * ms)
				wantErr(t, <-done, holdfast.ErrReleased)
				noErr(t, <-ended)
				if err := <-joined; ending == "Close" {
					wantErr(t, err, holdfast.ErrClosed)
				} else {
					noErr(t, err)
				}
				free(t, other, "a")
			})
		}
	}
}

// A hold with work under two handles lasts until both have returned, though one releases its own,
// and no longer, though there is another handle.
func TestTwoWorksUnderOneHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other, o := open(t, store, nil), open(t, store, nil), &holdfast.Options{Reentrant: true}
		idle := acquire(t, c, "a", o)
		var group sync.WaitGroup
		for i := range 2 {
			lock := acquire(t, c, "a", o)
			group.Go(func() {
				wantErr(t, lock.Do(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					if i == 1 {
						noErr(t, lock.Release())
					}
					time.Sleep(time.Duration(1+i) * time.Second)
					return nil
				}), holdfast.ErrReleased)
			})
		}
		synctest.Wait()
		ended := later(c.ReleaseAll)
		time.Sleep(1500 * ms)
		wantErr(t, failure(other.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		noErr(t, within(t, 500*ms, 500*ms, func() error { return <-ended }))
		group.Wait()
		wantErr(t, idle.Err(), holdfast.ErrReleased)
		free(t, other, "a")
	})
}
