package holdfast_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memstore"
)

var shared = &holdfast.Options{Shared: true}

// Readers hold a lock together, within a Client and over Clients; a writer holds it alone. Each has
// a token of its own, in the order of the grants, and a writer waits for the readers that came
// before it, and for no later ones.
func TestSharedLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), open(t, store, nil)
		readers := []*holdfast.Lock{
			acquire(t, a, "a", shared), acquire(t, a, "a", shared), acquire(t, b, "a", shared),
		}
		wantErr(t, failure(a.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		writer := startWaiters(t, b, "a", nil, 1)
		wantErr(t, failure(a.TryAcquire(ctx, "a", shared)), holdfast.ErrHeld)
		later := []<-chan *holdfast.Lock{startWaiters(t, a, "a", shared, 1), startWaiters(t, b, "a", shared, 1)}
		time.Sleep(5 * holdfast.DefaultTTL)
		last := int64(0)
		for _, lock := range readers {
			waits(t, writer)
			if lock.Token() <= last {
				t.Errorf("token %d after %d", lock.Token(), last)
			}
			last = lock.Token()
			release(t, lock)
		}
		lock := <-writer
		time.Sleep(5 * holdfast.DefaultTTL)
		waits(t, later[0])
		release(t, lock)
		for _, waiting := range later {
			reader := <-waiting
			if reader.Token() <= lock.Token() || lock.Token() <= last {
				t.Errorf("a reader has token %d after a writer with %d, after %d", reader.Token(), lock.Token(), last)
			}
			defer release(t, reader)
		}
	})
}

// Break ends all holds of a name or one of them, and the Client that breaks its own knows
// of it at once.
func TestBreakOfSharedHolds(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		one, two, far := acquire(t, c, "a", shared), acquire(t, c, "a", shared), acquire(t, other, "a", shared)
		wantErr(t, failure(other.Break(ctx, "a", 1)), holdfast.ErrNotHeld)
		wantErr(t, failure(other.Break(ctx, "a", -1)), holdfast.ErrInvalid)
		records, err := c.Break(ctx, "a", two.Token())
		if err != nil || len(records) != 1 || records[0].Token != two.Token() {
			t.Errorf("Break of a token: %v, %v", records, err)
		}
		wantErr(t, two.Err(), holdfast.ErrLost, holdfast.ErrTaken)
		if one.Err() != nil {
			t.Errorf("the other hold: %v", one.Err())
		}
		records, err = c.Break(ctx, "a", 0)
		if err != nil || len(records) != 2 || records[0].Token != one.Token() || records[1].Token != far.Token() {
			t.Errorf("Break: %v, %v", records, err)
		}
		wantErr(t, one.Err(), holdfast.ErrLost, holdfast.ErrTaken)
		synctest.Wait() // The store has notified the other Client.
		wantErr(t, far.Err(), holdfast.ErrLost, holdfast.ErrTaken)
	})
}

// A reader behind a waiting writer does not wait for the other reader of its Client.
func TestReaderBehindAWriter(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Holder: "A"}), open(t, store, nil)
		one, two := acquire(t, c, "a", shared), acquire(t, other, "a", shared)
		writer := startWaiters(t, other, "a", nil, 1)
		err := failure(c.TryAcquire(ctx, "a", shared))
		if held := heldError(t, err); !held.Self || !strings.Contains(err.Error(), `, shared, 30s left unless renewed, 1 waiting`) {
			t.Errorf("a reader behind a writer: %v", err)
		}
		release(t, one)
		release(t, two)
		release(t, <-writer)
	})
}
