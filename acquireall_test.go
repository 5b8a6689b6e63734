package holdfast_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/memstore"
)

var abc = []string{"b", "c", "a"}

func acquireAll(t *testing.T, c *holdfast.Client, names []string, o *holdfast.Options) *holdfast.LockSet {
	t.Helper()
	set, err := c.AcquireAll(t.Context(), names, o)
	if err != nil {
		t.Fatalf("AcquireAll: %v", err)
	}
	return set
}

func releaseAll(t *testing.T, set *holdfast.LockSet) {
	t.Helper()
	if err := set.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestAcquireAll(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		set := acquireAll(t, c, abc, nil)
		if got := set.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("names %v", got)
		}
		if !slices.Equal(abc, []string{"b", "c", "a"}) {
			t.Error("the caller's names were changed")
		}
		tokens := map[string]int64{}
		for _, name := range abc {
			tokens[name] = lookup(t, c, name).Token
		}
		if got := set.Tokens(); !maps.Equal(got, tokens) {
			t.Errorf("tokens %v, want %v", got, tokens)
		}
		time.Sleep(time.Minute) // it is renewed
		if err := set.Err(); err != nil || set.Context().Err() != nil {
			t.Errorf("a set that is held: %v, %v", err, set.Context().Err())
		}
		if left := time.Until(set.Deadline()); left < 15*time.Second || left > 30*time.Second {
			t.Errorf("%v to the deadline", left)
		}
		releaseAll(t, set)
		releaseAll(t, set)
		wantErr(t, set.Err(), holdfast.ErrReleased)
		wantErr(t, context.Cause(set.Context()), holdfast.ErrReleased)
		for _, name := range abc {
			free(t, c, name)
		}
	})
}

func TestAcquireAllChecksItsArguments(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for _, names := range [][]string{nil, {"a", "b", "a"}, {"a", ""}} {
			_, err := c.AcquireAll(ctx, names, nil)
			wantErr(t, err, holdfast.ErrInvalid)
		}
		_, err := c.AcquireAll(ctx, abc, &holdfast.Options{TTL: 1})
		wantErr(t, err, holdfast.ErrInvalid)
		free(t, c, "a")
	})
}

func TestTryAcquireAllTakesAllOrNothing(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		for _, network := range []bool{false, true} {
			c, store := faulty(t, nil)
			other := open(t, store.Store, nil)
			if !network {
				c = open(t, store.Store, nil)
			}
			lock := acquire(t, other, "b", nil)
			_, err := c.TryAcquireAll(ctx, abc, nil)
			wantErr(t, err, holdfast.ErrHeld)
			free(t, c, "a")
			free(t, c, "c")
			release(t, lock)
			set, err := c.TryAcquireAll(ctx, abc, nil)
			if err != nil {
				t.Fatal(err)
			}
			releaseAll(t, set)
		}
	})
}

// A call that waits for a name holds the names before it, and none after it.
func TestAcquireAllWaitsInOrder(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		lock := acquire(t, other, "b", nil)
		got := make(chan *holdfast.LockSet)
		go func() { got <- acquireAll(t, c, abc, nil) }()
		synctest.Wait()
		_, err := other.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		greater, err := other.TryAcquire(ctx, "c", nil)
		if err != nil {
			t.Fatalf("the greater name is held by one who waits: %v", err)
		}
		time.Sleep(time.Minute)
		release(t, lock)
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			_, err := other.TryAcquire(ctx, name, nil)
			wantErr(t, err, holdfast.ErrHeld)
		}
		release(t, greater)
		releaseAll(t, <-got)
	})
}

// One deadline is for all, however many waits it takes.
func TestAcquireAllHasOneDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		a, b := acquire(t, other, "a", nil), acquire(t, other, "b", nil)
		acquire(t, other, "c", nil)
		time.AfterFunc(600*ms, func() { a.Release() })
		time.AfterFunc(900*ms, func() { b.Release() })
		began := time.Now()
		_, err := c.AcquireAll(ctx, abc, &holdfast.Options{Wait: time.Second})
		wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		free(t, c, "a")
		free(t, c, "b")
	})
}

// A lock that is lost while another is waited for is acquired anew.
func TestAcquireAllRetakesWhatIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		lock := acquire(t, other, "c", nil)
		got := make(chan *holdfast.LockSet)
		go func() { got <- acquireAll(t, c, abc, nil) }()
		synctest.Wait()
		before, err := other.Break(ctx, "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		thief := acquire(t, other, "a", nil)
		time.Sleep(20 * time.Second) // c has noticed by its renewal
		release(t, thief)
		release(t, lock)
		set := <-got
		if token := set.Tokens()["a"]; token <= before[0].Token {
			t.Errorf("token %d, want one after %d", token, before[0].Token)
		}
		if err := set.Err(); err != nil {
			t.Error(err)
		}
		releaseAll(t, set)
	})
}

func TestLockSetEndsWithAnyOfItsLocks(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		set := acquireAll(t, c, abc, nil)
		held := set.Context()
		if _, err := other.Break(ctx, "b", 0); err != nil {
			t.Fatal(err)
		}
		<-held.Done()
		wantErr(t, context.Cause(held), holdfast.ErrLost, holdfast.ErrTaken)
		wantErr(t, set.Err(), holdfast.ErrLost)
		for _, name := range []string{"a", "c"} { // not before Release
			_, err := other.TryAcquire(ctx, name, nil)
			wantErr(t, err, holdfast.ErrHeld)
		}
		wantErr(t, set.Release(), holdfast.ErrLost)
		for _, name := range abc {
			free(t, c, name)
		}
	})
}

func TestLockSetExpires(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		set := acquireAll(t, c, abc, &holdfast.Options{MaxHold: time.Second})
		time.Sleep(900 * ms)
		if err := set.Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * ms)
		wantErr(t, context.Cause(set.Context()), holdfast.ErrMaxHold)
		wantErr(t, set.Release(), holdfast.ErrMaxHold)
		_, err := c.AcquireAll(ctx, abc, &holdfast.Options{NoRenew: true})
		wantErr(t, err, holdfast.ErrInvalid)
	})
}

// A reentrant set joins what its Client has, and leaves it alone when it fails.
func TestReentrantSet(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		re := &holdfast.Options{Reentrant: true}
		outer := acquire(t, c, "a", re)
		lock := acquire(t, other, "c", nil)
		_, err := c.TryAcquireAll(ctx, abc, re)
		wantErr(t, err, holdfast.ErrHeld)
		free(t, c, "b")
		if err := outer.Err(); err != nil {
			t.Errorf("the outer lock: %v", err)
		}
		release(t, lock)
		set := acquireAll(t, c, abc, re)
		if set.Tokens()["a"] != outer.Token() {
			t.Error("the set did not join the outer lock")
		}
		release(t, outer)
		if err := set.Err(); err != nil {
			t.Error(err)
		}
		releaseAll(t, set)
	})
}

func TestDoAll(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		err := c.DoAll(ctx, abc, nil, func(ctx context.Context) error {
			if set := holdfast.SetFromContext(ctx); set == nil || set.Err() != nil {
				t.Errorf("set from context: %v", set)
			}
			_, err := c.Break(ctx, "b", 0)
			if err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), holdfast.ErrTaken)
			return errWork
		})
		wantErr(t, err, errWork, holdfast.ErrTaken)
		for _, name := range abc {
			free(t, c, name)
		}
		if holdfast.SetFromContext(ctx) != nil {
			t.Error("a set outside of DoAll")
		}
		wantErr(t, c.DoAll(ctx, nil, nil, nil), holdfast.ErrInvalid)
	})
}

func TestRandomSets(t *testing.T) {
	for kind, store := range localStores {
		t.Run(kind, func(t *testing.T) {
			s := store(t)
			two := []*holdfast.Client{open(t, s, nil), open(t, secondStore(t, s), nil)}
			if n := checkSets(t, 500*ms, two...); n == 0 {
				t.Error("nobody had a set")
			}
		})
	}
}

// secondStore is a store over the same locks, as if in another process.
func secondStore(t *testing.T, s driver.Store) driver.Store {
	t.Helper()
	first, ok := s.(*filestore.Store)
	if !ok {
		return s
	}
	second, err := filestore.New(first.Dir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { second.Close() })
	return second
}
