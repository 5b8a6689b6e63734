package holdfast_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

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
			if _, err := c.Break(ctx, "a", 0); err != nil {
				t.Fatal(err)
			}
			for _, i := range order[4:] {
				wantErr(t, context.Cause(ended[i]), holdfast.ErrTaken)
				wantErr(t, locks[i].Release(), holdfast.ErrTaken)
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
