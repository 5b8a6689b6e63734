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

// The name stays taken for the given time, counted from the call, also if the answer is lost.
func TestReleaseKeep(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"plain": nil, "lost reply": faultstore.LoseReply} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			lock := acquire(t, open(t, store, nil), "name", nil)
			time.Sleep(2 * time.Second)
			if fault != nil {
				store.Once(faultstore.Release, fault)
			}
			began := time.Now()
			if err := lock.ReleaseKeep(5 * time.Second); err != nil {
				t.Error(err)
			}
			if err := lock.Err(); err != holdfast.ErrReleased {
				t.Errorf("Err: %v", err)
			}
			acquire(t, open(t, store, nil), "name", nil)
			if kept := time.Since(began); kept < 5*time.Second || kept > 6*time.Second {
				t.Errorf("%s: kept for %v, want 5s", name, kept)
			}
		})
	}
}

// The name is kept also after MaxHold has ended the hold.
func TestKeepOutlastsMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c := open(t, memstore.New(), nil)
		lock := acquire(t, c, "a", &holdfast.Options{MaxHold: time.Minute})
		<-lock.Context().Done()
		wantErr(t, lock.ReleaseKeep(time.Hour), holdfast.ErrMaxHold)
		time.Sleep(time.Hour - time.Second)
		_, err := c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		time.Sleep(2 * time.Second)
		free(t, c, "a")
	})
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
		if _, err := locks.Break(ctx, "name", 0); err != nil {
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
	virtual(t, func(t *testing.T, ctx context.Context) {
		memory := memstore.New()
		store := faultstore.Wrap(memory)
		c, other := open(t, store, nil), open(t, memory, nil)
		lock := acquire(t, c, "name", nil)
		store.Set(faultstore.Renew, faultstore.Hang)
		time.Sleep(28 * time.Second)
		store.Once(faultstore.Release, faultstore.Hang)
		wantErr(t, lock.ReleaseKeep(time.Hour), holdfast.ErrLost, holdfast.ErrTaken)
		release(t, acquire(t, other, "name", nil))
	})
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
