package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

type valueKey struct{}

// Locks does not return the handle of a reentrant Acquire that is still under way, so
// that the release of what Locks returns never releases what Acquire is to return.
func TestLocksDuringAReentrantAcquire(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		o := &holdfast.Options{Reentrant: true}
		first, err := c.Acquire(context.WithValue(ctx, valueKey{}, "first"), "a", o)
		if err != nil {
			t.Fatal(err)
		}
		store.Set(faultstore.Renew, faultstore.Hang)
		var second *holdfast.Lock
		var group sync.WaitGroup
		group.Go(func() {
			var err error
			second, err = c.Acquire(context.WithValue(ctx, valueKey{}, "second"), "a", o)
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		locks := c.Locks()
		if len(locks) != 1 {
			t.Fatalf("%d locks, want 1", len(locks))
		}
		if value := locks[0].Context().Value(valueKey{}); value != "first" {
			t.Errorf("the context has the value %v, want that of the first Acquire", value)
		}
		release(t, locks[0])
		wantErr(t, first.Err(), holdfast.ErrReleased)
		store.Set(faultstore.Renew, nil)
		group.Wait()
		if err := second.Err(); err != nil {
			t.Errorf("what Acquire has returned: %v", err)
		}
		if value := second.Context().Value(valueKey{}); value != "second" {
			t.Errorf("the context has the value %v, want that of the second Acquire", value)
		}
		release(t, second)
		free(t, c, "a")
	})
}

// What Locks returns beside acquisitions of other goroutines can be used at once.
func TestLocksBesideAcquisitions(t *testing.T) {
	c := open(t, memstore.New(), nil)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			o := &holdfast.Options{Reentrant: g%2 == 0}
			for i := range 2000 {
				name := fmt.Sprint(g/2, i%8)
				if err := acquire(t, c, name, o).Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var look sync.WaitGroup
	look.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, lock := range c.Locks() {
				if lock.Context() == nil {
					t.Error("no context")
				}
			}
		}
	})
	group.Wait()
	close(stop)
	look.Wait()
}

// The handles of a reentrant hold that are released cost nothing any more, however
// long the hold lasts.
func TestReleasedHandlesAreForgotten(t *testing.T) {
	c := open(t, memstore.New(), nil)
	o := &holdfast.Options{Reentrant: true}
	first := acquire(t, c, "a", o)
	kept := acquire(t, c, "a", o)
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := heap()
	for range 20_000 {
		release(t, acquire(t, c, "a", o))
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("20,000 released handles: the heap has grown by %d KiB", grown>>10)
	}
	ended := kept.Context().Done()
	release(t, first)
	if err := kept.Err(); err != nil {
		t.Error(err)
	}
	if err := c.ReleaseAll(); err != nil {
		t.Error(err)
	}
	<-ended
}

// The contexts of all handles that are not released end with their hold, in whatever
// order the others were released.
func TestHandlesEndWithTheirHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		o := &holdfast.Options{Reentrant: true}
		for range 200 {
			locks := make([]*holdfast.Lock, 6)
			ended := make([]context.Context, len(locks))
			for i := range locks {
				locks[i] = acquire(t, c, "a", o)
				ended[i] = locks[i].Context()
			}
			order := rand.Perm(len(locks))
			for _, i := range order[:4] {
				release(t, locks[i])
				wantErr(t, context.Cause(ended[i]), holdfast.ErrReleased)
			}
			if _, err := c.Break(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			for _, i := range order[4:] {
				wantErr(t, context.Cause(ended[i]), holdfast.ErrBroken)
				wantErr(t, locks[i].Release(), holdfast.ErrBroken)
			}
			if t.Failed() {
				t.Fatalf("in the order %v", order)
			}
		}
	})
}

// The context of a LockSet ends with any of its locks, also if Do has run under that
// lock alone.
func TestLockSetEndsWithTheDoOfOneOfItsLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		set := acquireAll(t, c, []string{"a", "b"}, nil)
		ended := set.Context()
		err := c.Locks()[0].Do(ctx, nothing)
		if err != nil {
			t.Error(err)
		}
		select {
		case <-ended.Done():
		default:
			t.Error("the context of the set lives on")
		}
		wantErr(t, context.Cause(ended), holdfast.ErrReleased)
		_ = set.Release()
	})
}

// A LockSet whose Do was refused, since work runs under one of its locks, is as
// before: Close does not wait for it, and Do can run later.
func TestRefusedDoOfALockSetChangesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		o := &holdfast.Options{Reentrant: true}
		set := acquireAll(t, c, []string{"a", "b"}, o)
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			err := c.Locks()[1].Do(ctx, func(context.Context) error { <-done; return nil })
			wantErr(t, err, holdfast.ErrReleased)
		})
		synctest.Wait()
		wantErr(t, set.Do(ctx, nothing), holdfast.ErrInvalid)
		if err := set.Err(); err != nil {
			t.Errorf("after the refusal: %v", err)
		}
		began := time.Now()
		err := c.Locks()[0].Do(ctx, nothing)
		if err != nil {
			t.Errorf("Do under the other lock: %v", err)
		}
		group.Go(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("Close took %v, the work 1s", took)
			}
		})
		time.Sleep(time.Second)
		close(done)
		group.Wait()
	})
}
