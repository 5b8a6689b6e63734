package holdfast_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store that returns at its deadlines is called by the caller himself, unless
// he can be cancelled; any other store never is.
func TestWhoMakesTheRequest(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		prompt bool
		own    bool
	}{
		"prompt":                          {context.Background(), true, true},
		"prompt, cancellable":             {cancellable, true, false},
		"may block for long":              {context.Background(), false, false},
		"may block for long, cancellable": {cancellable, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := faultstore.Wrap(memstore.New())
			if c.prompt {
				store.Prompt()
			}
			client := holdfast.New(store, nil)
			defer client.Close()
			var by string
			store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				by = goroutine()
				apply()
				return nil
			})
			lock, err := client.Acquire(c.ctx, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			release(t, lock)
			if own := by == goroutine(); own != c.own {
				t.Errorf("the caller's own goroutine asks the store: %v, want %v", own, c.own)
			}
		})
	}
}

// goroutine is the number of the goroutine that calls it.
func goroutine() string {
	trace := make([]byte, 64)
	return string(bytes.Fields(trace[:runtime.Stack(trace, false)])[1])
}

// A store that hangs until its deadlines, as it may, holds nobody up for longer.
func TestSilentStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, _ context.Context) {
		store := faultstore.Wrap(memstore.New()).Prompt()
		c := holdfast.New(store, nil)
		lock, err := c.Acquire(context.Background(), "a", nil)
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
		bound("Lookup", 3*time.Second, func() error { _, err := c.Lookup(context.Background(), "a"); return err })
		bound("TryAcquire", 7*time.Second, func() error { _, err := c.TryAcquire(context.Background(), "b", nil); return err })
		bound("Extend", 3*time.Second, func() error { return lock.Extend(context.Background(), time.Minute) })
		bound("Release", 10*time.Second, lock.Release)

		cancelled, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		began := time.Now()
		_, err = c.Acquire(cancelled, "c", nil)
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(began); took != 100*ms {
			t.Errorf("a cancelled Acquire returned after %v, want 100ms", took)
		}
		_ = c.Close() // it cannot confirm the releases
	})
}
