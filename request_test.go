package holdfast_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A request runs on the goroutine of its caller, with the values of the caller's context and the
// deadline of the request. It does not end with the caller's context.
func TestRequestOnCallersGoroutine(t *testing.T) {
	type key struct{}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		ctx, cancel := context.WithCancel(context.WithValue(ctx, key{}, "value"))
		var madeBy string
		store.Once(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			madeBy = goroutine()
			apply()
			if ctx.Value(key{}) != "value" {
				t.Error("the value of the caller's context is missing")
			}
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 3*time.Second {
				t.Errorf("the deadline is %v, %v", deadline, ok)
			}
			derived, cancelDerived := context.WithCancel(ctx)
			defer cancelDerived()
			cancel()
			time.Sleep(3*time.Second - 1)
			synctest.Wait()
			for _, c := range []context.Context{ctx, derived} {
				if c.Err() != nil {
					t.Errorf("the request has ended with the caller's context: %v", c.Err())
				}
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			for _, c := range []context.Context{ctx, derived} {
				if c.Err() != context.DeadlineExceeded || context.Cause(c) != context.DeadlineExceeded {
					t.Errorf("at its deadline: %v, because of %v", c.Err(), context.Cause(c))
				}
			}
			return nil
		})
		_, err := c.Acquire(ctx, "a", nil)
		wantErr(t, err, context.Canceled)
		if madeBy != goroutine() {
			t.Error("the request was made by another goroutine")
		}
		time.Sleep(time.Second)
		free(t, c, "a")
	})
}

// goroutine is the number of the goroutine that calls it.
func goroutine() string {
	trace := make([]byte, 64)
	return string(bytes.Fields(trace[:runtime.Stack(trace, false)])[1])
}

// A store that hangs until its deadlines, as it may, holds nothing up for longer.
func TestSilentStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, _ context.Context) { silentStore(t) })
}

func silentStore(t *testing.T) {
	ctx := context.Background()
	store := faultstore.Wrap(memstore.New())
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
		t.Errorf("an Acquire with a deadline returned after %v, want 100ms", took)
	}
	_ = c.Close() // it cannot confirm the releases
}
