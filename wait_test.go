package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store whose Watch does not return before its context ends holds a waiter up for one request
// timeout: the waiter tries at intervals then.
func TestHungWatchIsBounded(t *testing.T) {
	for _, detached := range []bool{true, false} {
		virtual(t, func(t *testing.T, _ context.Context) {
			faults := faultstore.Wrap(memstore.New())
			unblock := make(chan struct{})
			defer close(unblock)
			var store driver.Store = faults
			faults.Set(faultstore.Watch, faultstore.Hang)
			if detached {
				store = driver.Detach(faults)
				faults.Set(faultstore.Watch, func(context.Context, faultstore.Op, func()) error { <-unblock; return nil })
			}
			first := acquire(t, open(t, faults.Store, nil), "a", nil)
			waiter := holdfast.New(store, nil)
			got := make(chan time.Time, 1)
			go func() {
				if _, err := waiter.Acquire(context.Background(), "a", nil); err != nil {
					t.Error(err)
				}
				got <- time.Now()
			}()
			time.Sleep(5 * time.Second)
			release(t, first)
			freed := time.Now()
			select {
			case taken := <-got:
				if late := taken.Sub(freed); late > 250*ms {
					t.Errorf("detached %v: taken %v after the release", detached, late)
				}
			case <-time.After(time.Minute):
				t.Errorf("detached %v: not taken within a minute", detached)
				return
			}
			if err := waiter.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A watch that hangs does not hold up a caller beyond its deadline.
func TestHungWatchEndsAtTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		faults := faultstore.Wrap(memstore.New())
		faults.Set(faultstore.Watch, faultstore.Hang)
		acquire(t, open(t, faults.Store, nil), "a", nil)
		limited, cancel := context.WithTimeout(ctx, 300*ms)
		defer cancel()
		began := time.Now()
		_, err := open(t, faults, nil).Acquire(limited, "a", nil)
		wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		if took := time.Since(began); took != 300*ms {
			t.Errorf("it took %v, want 300ms", took)
		}
	})
}
