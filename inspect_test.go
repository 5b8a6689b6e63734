package holdfast_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

func TestListStripsThePrefix(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{Prefix: "mine:"}), open(t, store, nil)
		for _, name := range []string{"a/1", "a/2", "b"} {
			acquire(t, c, name, nil)
		}
		acquire(t, other, "a/3", nil)
		var names []string
		for rec, err := range c.List(ctx, "a/") {
			if err != nil {
				t.Error(err)
			}
			names = append(names, rec.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a/1", "a/2"}) {
			t.Errorf("listed %q", names)
		}
	})
}

func TestWaitFree(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		if err := c.WaitFree(ctx, "a"); err != nil {
			t.Errorf("of a free lock: %v", err)
		}
		other := open(t, store.Store, nil)
		lock := acquire(t, other, "a", nil)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		wantErr(t, c.WaitFree(limited, "a"), context.DeadlineExceeded)

		freed := make(chan time.Time, 1)
		go func() {
			time.Sleep(time.Minute)
			store.Set(faultstore.Lookup, faultstore.Refuse) // an outage in between
			time.Sleep(5 * time.Second)
			store.Set(faultstore.Lookup, nil)
			time.Sleep(time.Minute)
			freed <- time.Now()
			release(t, lock)
		}()
		if err := c.WaitFree(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if late := time.Since(<-freed); late > 0 {
			t.Errorf("returned %v after the release", late)
		}
		if _, err := c.TryAcquire(ctx, "a", nil); err != nil {
			t.Errorf("WaitFree has taken the lock: %v", err)
		}
	})
}
