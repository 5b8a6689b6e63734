package holdfast_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestListStripsThePrefix(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Prefix: "mine:"}), open(t, store, nil)
		for _, name := range []string{"a/1", "a/2", "b"} {
			acquire(t, c, name, nil)
		}
		acquire(t, other, "a/3", nil)
		var names []string
		for rec, err := range c.List(ctx, "a/") {
			noErr(t, err)
			names = append(names, rec.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a/1", "a/2"}) {
			t.Errorf("listed %q", names)
		}
	})
}

// Break ends the hold with its token, and no other.
func TestBreakOfAToken(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		before := acquire(t, c, "a", nil)
		release(t, before)
		lock := acquire(t, c, "a", nil)
		for _, token := range []int64{1, before.Token(), lock.Token() + 1} {
			wantErr(t, failure(other.Break(ctx, "a", token)), holdfast.ErrNotHeld)
		}
		wantErr(t, failure(other.Break(ctx, "a", -1)), holdfast.ErrInvalid)
		noErr(t, lock.Extend(ctx, holdfast.DefaultTTL))
		records, err := c.Break(ctx, "a", lock.Token())
		if err != nil || len(records) != 1 || records[0].Name != "a" || records[0].Token != lock.Token() {
			t.Fatalf("with its token: %v, %v", records, err)
		}
		wantErr(t, lock.Err(), holdfast.ErrTaken)
		wantErr(t, failure(c.Break(ctx, "a", lock.Token())), holdfast.ErrNotHeld)
	})
}

// A hold that another Client breaks ends at once, and no other does, however it was acquired.
func TestBreakEndsTheHoldAtOnce(t *testing.T) {
	for name, o := range map[string]*holdfast.Options{
		"plain": nil, "NoRenew": {NoRenew: true}, "Detached": {Detached: true}, "Reentrant": {Reentrant: true}, "Shared": shared,
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			lost := 0
			c := open(t, store, &holdfast.Config{
				Prefix: "p/", Hooks: holdfast.OnEvent(holdfast.EventLost, func(holdfast.Event) { lost++ }),
			})
			a, b := acquire(t, c, "a", o), acquire(t, c, "b", o)
			ended := a.Context()
			time.Sleep(time.Second)
			breakLock(t, open(t, store, nil), "p/a")
			noErr(t, within(t, 0, 0, func() error { <-ended.Done(); return nil }))
			for _, err := range []error{context.Cause(ended), a.Err(), a.Extend(ctx, time.Minute), a.Release()} {
				wantErr(t, err, holdfast.ErrLost, holdfast.ErrTaken)
			}
			synctest.Wait()
			if b.Err() != nil || lost != 1 {
				t.Errorf("the other lock: %v; %d losses", b.Err(), lost)
			}
			release(t, b)
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
		breakLock(t, other, "a")
		<-ended.Done()
		least = min(least, time.Since(began))
		_ = lock.Release()
	}
	if least > 10*ms {
		t.Errorf("the context of a broken hold ended after %v", least)
	}
}

// A notice makes the Client look, and ends nothing by itself: one of a hold that lasts, of another
// owner, of an entry that is over. A look that fails is made again. A look does not prolong a hold
// of NoRenew, and none is made after its end.
func TestNoticeOfAHold(t *testing.T) {
	for _, o := range []*holdfast.Options{nil, {NoRenew: true}} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			spy := spyOn(memstore.New())
			store := faultstore.Wrap(spy)
			c := closedAtLast(t, store, holdfast.New(store, nil))
			lock := acquire(t, c, "a", o)
			deadline := lock.Deadline()
			for _, notice := range []struct {
				owner string
				token int64
			}{{spy.owner, 0}, {spy.owner, lock.Token()}, {spy.owner, lock.Token() + 1}, {"another", 0}, {"another", lock.Token()}, {"", 0}} {
				time.Sleep(ms)
				spy.send("a", notice.owner, notice.token)
				spy.send("b", notice.owner, notice.token)
				synctest.Wait()
				if err := lock.Err(); err != nil || o != nil && lock.Deadline() != deadline {
					t.Fatalf("%+v: %v", notice, err)
				}
			}
			store.Set(faultstore.Renew, faultstore.Refuse)
			breakLock(t, spy.Notifier, "a")
			synctest.Wait()
			if err := lock.Err(); err != nil {
				t.Fatalf("the store has not answered: %v", err)
			}
			store.Set(faultstore.Renew, nil)
			noErr(t, within(t, 0, 2*time.Second, func() error { <-lock.Context().Done(); return nil }))
			wantErr(t, lock.Release(), holdfast.ErrTaken)

			lock = acquire(t, c, "a", o)
			store.Once(faultstore.Release, faultstore.Hang)
			go lock.Release()
			synctest.Wait()
			looks := store.Calls(faultstore.Renew)
			spy.send("a", "", 0)
			synctest.Wait()
			if n := store.Calls(faultstore.Renew) - looks; n > 0 {
				t.Errorf("%d looks at a hold that has ended", n)
			}
		})
	}
}
