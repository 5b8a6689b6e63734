package holdfast_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A reentrant call joins a reentrant hold of its Client and no other, and those that wait join
// together.
func TestReentrant(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, re := open(t, memstore.New(), nil), &holdfast.Options{Reentrant: true}
		exclusive := acquire(t, c, "a", nil)
		wantErr(t, failure(c.TryAcquire(ctx, "a", re)), holdfast.ErrHeld)
		waiting := startWaiters(t, c, "a", re, 3)
		release(t, exclusive)
		outer := acquire(t, c, "a", re)
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		for range 3 {
			inner := <-waiting
			if inner.Token() != outer.Token() {
				t.Errorf("tokens %d and %d, want one hold", outer.Token(), inner.Token())
			}
			defer release(t, inner)
		}
		release(t, outer)
		wantErr(t, outer.Err(), holdfast.ErrReleased)
		inner := acquire(t, c, "a", re)
		noErr(t, inner.Err())
		noErr(t, inner.Context().Err())
		release(t, inner)
	})
}

// The contexts of all handles that are not released end with their hold, in whatever order the
// others were released; the last release frees the name. One that was released runs no work.
func TestHandlesEndWithTheirHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for i := range 200 {
			locks := make([]*holdfast.Lock, 6)
			ended := make([]context.Context, len(locks))
			for i := range locks {
				locks[i] = acquire(t, c, "a", &holdfast.Options{Reentrant: true})
				ended[i] = locks[i].Context()
			}
			order, left := rand.Perm(len(locks)), i%3
			for _, i := range order[left:] {
				release(t, locks[i])
				wantErr(t, context.Cause(ended[i]), holdfast.ErrReleased)
				wantErr(t, locks[i].Do(ctx, func(context.Context) error { t.Error("it runs work"); return nil }), holdfast.ErrReleased)
			}
			if left == 0 {
				free(t, c, "a")
				continue
			}
			breakLock(t, c, "a")
			for _, i := range order[:left] {
				<-ended[i].Done()
				wantErr(t, context.Cause(ended[i]), holdfast.ErrTaken)
				wantErr(t, locks[i].Release(), holdfast.ErrTaken)
			}
			if t.Failed() {
				t.Fatalf("in the order %v", order)
			}
		}
	})
}

// A waiter joins a hold that its Client gets by a call beside the line.
func TestReentrantWaiterJoins(t *testing.T) {
	virtualRun(t, "of a single attempt", func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		net := faultstore.Wrap(mem).Silent()
		a, c := open(t, mem, nil), closedAtLast(t, net, holdfast.New(net, &holdfast.Config{Backoff: holdfast.Backoff{Min: time.Second, Max: time.Second}}))
		other, o := acquire(t, a, "n", nil), &holdfast.Options{Reentrant: true}
		waiter := startWaiters(t, c, "n", o, 1)
		release(t, other)
		first, err := c.TryAcquire(ctx, "n", o)
		noErr(t, err)
		release(t, <-waiter)
		release(t, first)
	})
	virtualRun(t, "with MaxAttempts", func(t *testing.T, ctx context.Context) {
		mem := memstore.New()
		a, c := open(t, mem, nil), open(t, mem, nil)
		other := acquire(t, a, "n", nil)
		result := later(func() error { return c.Do(ctx, "n", &holdfast.Options{Reentrant: true, MaxAttempts: 50}, nothing) })
		got := startWaiters(t, c, "n", &holdfast.Options{Reentrant: true}, 1)
		release(t, other)
		lock := <-got
		noErr(t, <-result)
		release(t, lock)
	})
}
