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

// A store whose Watch never returns keeps a waiter for one request timeout,
// whatever the store says of itself: the waiter tries at intervals then.
func TestHungWatchIsBounded(t *testing.T) {
	for _, blocks := range []driver.Blocking{driver.BlocksForLong, driver.BlocksToDeadline, driver.BlocksToContext} {
		virtual(t, func(t *testing.T, _ context.Context) {
			store := faultstore.Wrap(memstore.New()).Blocks(blocks)
			unblock := make(chan struct{})
			defer close(unblock)
			store.Set(faultstore.Watch, func(context.Context, faultstore.Op, func()) error { <-unblock; return nil })
			first := acquire(t, open(t, store.Store, nil), "a", nil)
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
					t.Errorf("blocks %v: taken %v after the release", blocks, late)
				}
			case <-time.After(time.Minute):
				t.Errorf("blocks %v: not taken within a minute", blocks)
				return
			}
			if err := waiter.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
