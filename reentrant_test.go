package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestReentrant(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		re := &holdfast.Options{Reentrant: true, TTL: 10 * time.Second}
		outer := acquire(t, c, "a", re)
		time.Sleep(5 * time.Second)
		inner := acquire(t, c, "a", re)
		if inner.Token() != outer.Token() {
			t.Errorf("tokens %d and %d", outer.Token(), inner.Token())
		}
		if _, err := c.TryAcquire(ctx, "a", nil); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("acquire that is not reentrant: %v", err)
		}
		release(t, outer)
		wantErr(t, outer.Err(), holdfast.ErrReleased)
		if err := inner.Err(); err != nil {
			t.Errorf("inner after release of outer: %v", err)
		}
		if inner.Context().Err() != nil {
			t.Error("the inner context ended with the outer release")
		}
		release(t, inner)
		free(t, c, "a")
	})
}

func TestReentrantDoesNotJoinAnExclusiveHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		acquire(t, c, "a", nil)
		_, err := c.TryAcquire(ctx, "a", &holdfast.Options{Reentrant: true})
		wantErr(t, err, holdfast.ErrHeld)
	})
}

func TestReentrantWaitersJoinTogether(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		first := acquire(t, c, "a", nil)
		tokens := make(chan int64, 3)
		for range 3 {
			go func() { tokens <- acquire(t, c, "a", &holdfast.Options{Reentrant: true}).Token() }()
		}
		synctest.Wait()
		release(t, first)
		if x, y, z := <-tokens, <-tokens, <-tokens; x != y || y != z {
			t.Errorf("tokens %d, %d, %d, want one hold", x, y, z)
		}
	})
}
