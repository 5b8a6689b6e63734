package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A hold that another Client breaks ends at once, and no other does, however it was acquired.
func TestBreakEndsTheHoldAtOnce(t *testing.T) {
	for name, o := range map[string]*holdfast.Options{
		"plain": nil, "NoRenew": {NoRenew: true}, "Detached": {Detached: true}, "Reentrant": {Reentrant: true}, "Shared": shared,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				lost := 0
				c := open(t, store, &holdfast.Config{
					Prefix: "p/", Hooks: holdfast.OnEvent(holdfast.EventLost, func(holdfast.Event) { lost++ }),
				})
				a, b := acquire(t, c, "a", o), acquire(t, c, "b", o)
				ended := a.Context()
				time.Sleep(time.Second)
				began := time.Now()
				if _, err := open(t, store, nil).Break(ctx, "p/a", 0); err != nil {
					t.Fatal(err)
				}
				<-ended.Done()
				if took := time.Since(began); took > 0 {
					t.Errorf("the context ended after %v", took)
				}
				for _, err := range []error{context.Cause(ended), a.Err(), a.Extend(ctx, time.Minute), a.Release()} {
					wantErr(t, err, holdfast.ErrLost, holdfast.ErrTaken)
				}
				synctest.Wait()
				if b.Err() != nil || lost != 1 {
					t.Errorf("the other lock: %v; %d losses", b.Err(), lost)
				}
				release(t, b)
			})
		})
	}
}

// The same in real time.
func TestBreakEndsTheHoldWithinMilliseconds(t *testing.T) {
	store := memstore.New()
	c, other := open(t, store, nil), open(t, store, nil)
	least := time.Hour
	for range 20 { // A busy machine may delay some of them.
		lock := acquire(t, c, "a", nil)
		ended := lock.Context()
		began := time.Now()
		if _, err := other.Break(t.Context(), "a", 0); err != nil {
			t.Fatal(err)
		}
		<-ended.Done()
		least = min(least, time.Since(began))
		_ = lock.Release()
	}
	if least > 10*ms {
		t.Errorf("the context of a broken hold ended after %v", least)
	}
}

// A notice makes the Client look, and ends nothing by itself: one of a hold that lasts, of another
// owner, of an entry that is over. A look that fails is made again.
func TestNoticeOfAHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		inner := &noticeStore{Store: memstore.New()}
		store := faultstore.Wrap(inner)
		c := closedAtLast(t, store, holdfast.New(store, nil))
		lock := acquire(t, c, "a", nil)
		for _, notice := range []struct {
			owner string
			token int64
		}{{inner.owner, 0}, {inner.owner, lock.Token()}, {inner.owner, lock.Token() + 1}, {"another", 0}, {"another", lock.Token()}, {"", 0}} {
			inner.send("a", notice.owner, notice.token)
			inner.send("b", notice.owner, notice.token)
			synctest.Wait()
			if err := lock.Err(); err != nil {
				t.Fatalf("%+v: %v", notice, err)
			}
		}
		store.Set(faultstore.Renew, faultstore.Refuse)
		if _, err := inner.Store.Break(ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := lock.Err(); err != nil {
			t.Fatalf("the store has not answered: %v", err)
		}
		store.Set(faultstore.Renew, nil)
		began := time.Now()
		<-lock.Context().Done()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the next look was made after %v", took)
		}
		wantErr(t, lock.Release(), holdfast.ErrTaken)
	})
}
