package holdfast_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// Whoever acquires asks the store himself, if that lets go of him in time: when
// he is cancelled too, if he can be.
func TestWhoMakesTheRequest(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		blocks       driver.Blocking
		own, ownHere bool // whether he does, if he can be cancelled; if not
	}{
		{driver.BlocksForLong, false, false},
		{driver.BlocksToDeadline, false, true},
		{driver.BlocksToContext, true, true},
	} {
		for ctx, want := range map[context.Context]bool{cancellable: c.own, context.Background(): c.ownHere} {
			store := faultstore.Wrap(memstore.New()).Blocks(c.blocks)
			client := open(t, store, nil)
			var by string
			store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				by = goroutine()
				apply()
				return nil
			})
			lock, err := client.Acquire(ctx, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			release(t, lock)
			if own := by == goroutine(); own != want {
				t.Errorf("blocks %v, %v: the caller asks the store himself: %v, want %v", c.blocks, ctx, own, want)
			}
		}
	}
}

// goroutine is the number of the goroutine that calls it.
func goroutine() string {
	trace := make([]byte, 64)
	return string(bytes.Fields(trace[:runtime.Stack(trace, false)])[1])
}

// A store that hangs until its deadlines, as it may, holds nobody up for longer.
func TestSilentStoreIsBounded(t *testing.T) {
	for _, blocks := range []driver.Blocking{driver.BlocksToDeadline, driver.BlocksToContext} {
		virtual(t, func(t *testing.T, _ context.Context) { silentStore(t, blocks) })
	}
}

func silentStore(t *testing.T, blocks driver.Blocking) {
	ctx := context.Background()
	store := faultstore.Wrap(memstore.New()).Blocks(blocks)
	c := holdfast.New(store, nil)
	lock, err := c.Acquire(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup} {
		store.Set(op, faultstore.Hang)
	}
	bound := func(what string, limit time.Duration, call func() error) {
		t.Helper()
		began := time.Now()
		wantErr(t, call(), holdfast.ErrUnavailable)
		if took := time.Since(began); took > limit {
			t.Errorf("%s took %v, want at most %v", what, took, limit)
		}
	}
	bound("Lookup", 3*time.Second, func() error { _, err := c.Lookup(ctx, "a"); return err })
	bound("TryAcquire", 7*time.Second, func() error { _, err := c.TryAcquire(ctx, "b", nil); return err })
	bound("Extend", 3*time.Second, func() error { return lock.Extend(ctx, time.Minute) })
	bound("Release", 10*time.Second, lock.Release)

	cancelled, cancel := context.WithTimeout(ctx, 100*ms)
	defer cancel()
	began := time.Now()
	_, err = c.Acquire(cancelled, "c", nil)
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took != 100*ms {
		t.Errorf("a cancelled Acquire returned after %v, want 100ms", took)
	}
	_ = c.Close() // it cannot confirm the releases
}

// What a cancelled Acquire may have been granted is given back, also where the
// caller has asked himself.
func TestCancelledOwnRequestLeavesNothing(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Blocks(driver.BlocksToContext)
		c := open(t, store, nil)
		store.Once(faultstore.Acquire, applyAndHang)
		limited, cancel := context.WithTimeout(ctx, 500*ms)
		defer cancel()
		_, err := c.Acquire(limited, "a", nil)
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		free(t, c, "a")
	})
}
