package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

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
