package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// TestReleaseKeep: the name stays taken from the call on, for as long as that
// says or MinHold does, also if the answer is lost.
func TestReleaseKeep(t *testing.T) {
	for name, test := range map[string]struct {
		minHold time.Duration
		fault   faultstore.Fault
		want    time.Duration
	}{
		"plain":        {want: 5 * time.Second},
		"min hold":     {minHold: 10 * time.Second, want: 8 * time.Second},
		"lost reply":   {fault: faultstore.LoseReply, want: 5 * time.Second},
		"less minimum": {minHold: time.Second, want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.Wrap(memstore.New())
				defer store.Close()
				locks, other := holdfast.New(store, nil), holdfast.New(store, nil)
				defer locks.Close()
				defer other.Close()
				lock, err := locks.Acquire(t.Context(), "name", &holdfast.Options{MinHold: test.minHold})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if test.fault != nil {
					store.Once(faultstore.Release, test.fault)
				}
				began := time.Now()
				if err := lock.ReleaseKeep(5 * time.Second); err != nil {
					t.Error(err)
				}
				if err := lock.Err(); err != holdfast.ErrReleased {
					t.Errorf("Err: %v", err)
				}
				if _, err := other.Acquire(t.Context(), "name", nil); err != nil {
					t.Fatal(err)
				}
				if kept := time.Since(began); kept < test.want || kept > test.want+time.Second {
					t.Errorf("kept for %v, want %v", kept, test.want)
				}
			})
		})
	}
}

// TestReleaseKeepRefuses what it cannot keep, and never says that a name is kept
// which is free.
func TestReleaseKeepRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), memstore.New()
		defer store.Close()
		locks := holdfast.New(store, nil)
		defer locks.Close()
		lock, err := locks.Acquire(ctx, "name", &holdfast.Options{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []time.Duration{-1, 0, driver.MinTTL - 1, driver.MaxTTL + 1} {
			if err := lock.ReleaseKeep(d); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("to keep it for %v: %v", d, err)
			}
		}
		second, err := locks.Acquire(ctx, "name", &holdfast.Options{Reentrant: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("with another handle: %v", err)
		}
		second.Release()
		if err := lock.Err(); err != nil {
			t.Fatalf("a refusal has ended the lock: %v", err)
		}
		if err := locks.ReleaseAll(); err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); err != holdfast.ErrReleased {
			t.Errorf("after ReleaseAll: %v", err)
		}
		if lock, err = locks.TryAcquire(ctx, "name", nil); err != nil {
			t.Fatalf("the name is kept though an error said that it is not: %v", err)
		}
		if _, err := locks.Break(ctx, "name"); err != nil {
			t.Fatal(err)
		}
		if err := lock.ReleaseKeep(time.Minute); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("after Break: %v", err)
		}
	})
}

// A keep is not confirmed if the hold has ended before a release was applied: the first request is
// lost, and the lease ends before the second.
func TestKeepAfterTheEnd(t *testing.T) {
	for name, minHold := range map[string]time.Duration{"ReleaseKeep": 0, "MinHold": time.Hour} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				memory := memstore.New()
				store := faultstore.Wrap(memory)
				c, other := open(t, store, nil), open(t, memory, nil)
				lock := acquire(t, c, "name", &holdfast.Options{MinHold: minHold})
				store.Set(faultstore.Renew, faultstore.Hang)
				time.Sleep(28 * time.Second)
				store.Once(faultstore.Release, faultstore.Hang)
				end := lock.Release
				if minHold == 0 {
					end = func() error { return lock.ReleaseKeep(time.Hour) }
				}
				if err := end(); !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrTaken) {
					t.Errorf("%s: %v, want ErrLost, since the name is not kept", name, err)
				}
				release(t, acquire(t, other, "name", nil))
			})
		})
	}
}

// A keep whose answer came late, and that is over by then, was kept.
func TestKeepIsOver(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := open(t, store, nil)
		lock := acquire(t, c, "name", nil)
		store.Once(faultstore.Release, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			time.Sleep(time.Second)
			return faultstore.ErrReplyLost
		})
		if err := lock.ReleaseKeep(time.Second / 2); err != nil {
			t.Error(err)
		}
	})
}
