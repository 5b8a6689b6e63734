package holdfast_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
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

func TestAcquireAll(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		set := acquireAll(t, c, abc, nil)
		if got := set.Names(); !slices.Equal(got, []string{"a", "b", "c"}) || !slices.Equal(abc, []string{"b", "c", "a"}) {
			t.Errorf("names %v, and the caller's are %v", got, abc)
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
		noErr(t, set.Release())
		noErr(t, set.Release())
		wantErr(t, set.Err(), holdfast.ErrReleased)
		wantErr(t, context.Cause(set.Context()), holdfast.ErrReleased)
		free(t, c, abc...)
	})
}

func TestAcquireAllChecksItsArguments(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		for _, names := range [][]string{nil, {"a", "b", "a"}, {"a", ""}} {
			err := failure(c.AcquireAll(ctx, names, nil))
			wantErr(t, err, holdfast.ErrInvalid)
			if len(names) == 3 && !strings.Contains(err.Error(), `"a": invalid argument: the name is given twice`) {
				t.Errorf("it does not tell which name is given twice: %v", err)
			}
		}
		for _, o := range []*holdfast.Options{{TTL: 1}, {NoRenew: true}} {
			wantErr(t, failure(c.AcquireAll(ctx, abc, o)), holdfast.ErrInvalid)
		}
		free(t, c, "a")
	})
}

func TestTryAcquireAllTakesAllOrNothing(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		remote, store := faulty(t, nil)
		near := open(t, store.Store, nil)
		for _, c := range []*holdfast.Client{remote, near} {
			lock := acquire(t, near, "b", nil)
			wantErr(t, failure(c.TryAcquireAll(ctx, abc, nil)), holdfast.ErrHeld)
			free(t, c, "a", "c")
			release(t, lock)
			set, err := c.TryAcquireAll(ctx, abc, nil)
			if err != nil {
				t.Fatal(err)
			}
			store.Set(faultstore.Release, far(100*ms))
			noErr(t, within(t, 0, 100*ms, set.Release)) // all at once
			store.Set(faultstore.Release, nil)
		}
	})
}

// A call that waits for a name holds the names before it, and none after it.
func TestAcquireAllWaitsInOrder(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		lock := acquire(t, other, "b", nil)
		var set *holdfast.LockSet
		got := later(func() error { set = acquireAll(t, c, abc, nil); return nil })
		wantErr(t, failure(other.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		greater, err := other.TryAcquire(ctx, "c", nil)
		if err != nil {
			t.Fatalf("the greater name is held by one who waits: %v", err)
		}
		time.Sleep(time.Minute)
		release(t, lock)
		waits(t, got)
		for _, name := range []string{"a", "b"} {
			wantErr(t, failure(other.TryAcquire(ctx, name, nil)), holdfast.ErrHeld)
		}
		release(t, greater)
		<-got
		noErr(t, set.Release())
	})
}

// A lock that is lost, or released, while another is waited for is acquired anew.
func TestAcquireAllRetakesWhatIsLost(t *testing.T) {
	for _, released := range []bool{false, true} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			c, other := open(t, store, nil), open(t, store, nil)
			lock := acquire(t, other, "c", nil)
			var set *holdfast.LockSet
			got := later(func() error { set = acquireAll(t, c, abc, nil); return nil })
			if released {
				noErr(t, c.ReleaseAll())
			} else {
				breakLock(t, other, "a")
			}
			thief := acquire(t, other, "a", nil)
			time.Sleep(20 * time.Second)
			release(t, thief)
			release(t, lock)
			<-got
			if token := set.Tokens()["a"]; token <= thief.Token() {
				t.Errorf("token %d, want one after %d", token, thief.Token())
			}
			noErr(t, set.Err())
			noErr(t, set.Release())
		})
	}
}

// AcquireAll that the store has answered rides out a store that refuses, as Acquire does.
func TestAcquireAllRidesOutARefusal(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply() // a is granted, then the server restarts
			store.Set(faultstore.Acquire, faultstore.Refuse)
			time.AfterFunc(2*time.Second, func() { store.Set(faultstore.Acquire, nil) })
			return nil
		})
		noErr(t, acquireAll(t, c, []string{"a", "b"}, nil).Release())
	})
}

// A set is not held when any of its locks has ended, in whatever way; the others are held until its
// Release.
func TestLockSetEndsWithAnyOfItsLocks(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, ctx context.Context, c, other *holdfast.Client)
		want []error
	}{
		"broken": {func(t *testing.T, _ context.Context, _, other *holdfast.Client) {
			breakLock(t, other, "b")
		}, []error{holdfast.ErrLost, holdfast.ErrTaken}},
		"expired": {func(*testing.T, context.Context, *holdfast.Client, *holdfast.Client) {
			time.Sleep(ms)
		}, []error{holdfast.ErrMaxHold}},
		"the Do of one": {func(t *testing.T, ctx context.Context, c, _ *holdfast.Client) {
			noErr(t, c.Locks()[1].Do(ctx, nothing))
		}, []error{holdfast.ErrReleased}},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			c, other := open(t, store, nil), open(t, store, nil)
			set := acquireAll(t, c, abc, &holdfast.Options{MaxHold: 20 * time.Second})
			held := set.Context()
			time.Sleep(20*time.Second - ms)
			noErr(t, set.Err())
			test.end(t, ctx, c, other)
			synctest.Wait()
			wantErr(t, context.Cause(held), test.want...)
			wantErr(t, set.Err(), test.want...)
			for _, name := range []string{"a", "c"} {
				wantErr(t, failure(other.TryAcquire(ctx, name, nil)), holdfast.ErrHeld)
			}
			if err := set.Release(); name != "the Do of one" {
				wantErr(t, err, test.want...)
			}
			synctest.Wait()
			free(t, c, abc...)
		})
	}
}

// A call that is canceled returns when it has released what it has got, and leaves nothing behind.
func TestCancelledAcquireAll(t *testing.T) {
	for _, delay := range []time.Duration{40 * ms, 80 * ms, 180 * ms, 220 * ms, 260 * ms} {
		virtualRun(t, delay.String(), func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			lock := acquire(t, open(t, store.Store, nil), "b", nil)
			store.Set(faultstore.Acquire, far(100*ms))
			store.Set(faultstore.Release, far(100*ms))
			limited, cancel := context.WithTimeout(ctx, delay)
			defer cancel()
			err := within(t, delay, delay+200*ms, func() error { return failure(c.AcquireAll(limited, abc, nil)) })
			wantErr(t, err, context.DeadlineExceeded)
			release(t, lock)
			time.Sleep(time.Second)
			free(t, c, abc...)
		})
	}
}

// A reentrant set joins what its Client has, and leaves it alone when it fails.
func TestReentrantSet(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, nil), open(t, store, nil)
		re := &holdfast.Options{Reentrant: true}
		outer := acquire(t, c, "a", re)
		lock := acquire(t, other, "c", nil)
		wantErr(t, failure(c.TryAcquireAll(ctx, abc, re)), holdfast.ErrHeld)
		free(t, c, "b")
		noErr(t, outer.Err())
		release(t, lock)
		set := acquireAll(t, c, abc, re)
		if set.Tokens()["a"] != outer.Token() {
			t.Error("the set did not join the outer lock")
		}
		release(t, outer)
		noErr(t, set.Err())
		noErr(t, set.Release())
	})
}
