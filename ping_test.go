package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Every Ping of a store that takes locks and does not give them back fails, and the
// first after that succeeds.
func TestPingFailsWhileNothingCanBeGivenBack(t *testing.T) {
	faults := map[string]faultstore.Fault{
		"refused":    faultstore.Refuse,
		"no rights":  fails(errors.New("no rights")),
		"reply lost": faultstore.LoseReply,
		"hung":       faultstore.Hang,
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				store.Set(faultstore.Release, fault)
				for i := range 30 {
					err := c.Ping(ctx)
					if !errors.Is(err, holdfast.ErrUnavailable) {
						t.Errorf("Ping %d: %v", i, err)
					}
					if name == "refused" && !errors.Is(err, faultstore.ErrRefused) {
						t.Errorf("Ping %d meets with what another has left: %v", i, err)
					}
					time.Sleep(time.Second)
				}
				store.Set(faultstore.Release, nil)
				if err := c.Ping(ctx); err != nil {
					t.Errorf("when the store works again: %v", err)
				}
			})
		})
	}
}

// What a Ping could not give back is given back in the background, until the store
// must have freed it.
func TestPingGoesOnGivingBack(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, c.Ping(ctx), holdfast.ErrUnavailable)
		time.Sleep(5 * time.Second)
		store.Set(faultstore.Release, nil)
		time.Sleep(time.Second)
		for rec, err := range store.Store.List(ctx, "") {
			t.Errorf("Ping has left %+v, %v", rec, err)
		}
		time.Sleep(time.Minute)
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, c.Ping(ctx), holdfast.ErrUnavailable)
		time.Sleep(time.Minute)
		n := store.Calls(faultstore.Release)
		time.Sleep(time.Minute)
		if n != store.Calls(faultstore.Release) {
			t.Error("it goes on when the TTL is over")
		}
	})
}
