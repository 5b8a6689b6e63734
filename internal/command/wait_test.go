package command

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A wait goes on while the store is silent for less than --max-outage since its last answer, and
// ends with 69 after that, and at once if the first look is refused.
func TestWaitThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.Wrap(memstore.New())
		client := holdfast.New(store, nil)
		defer client.Close()
		lock := holdLock(t, client, "x")
		c := &cli{maxOutage: 10 * time.Second}
		began := time.Now()
		wait := make(chan error)
		go func() { wait <- c.waitFree(t.Context(), client, "x", waitForever) }()
		for range 3 { // together longer than an outage may take
			time.Sleep(time.Second)
			store.Set(faultstore.Lookup, faultstore.Refuse)
			time.Sleep(6 * time.Second)
			store.Set(faultstore.Lookup, nil)
		}
		time.Sleep(time.Second)
		store.Set(faultstore.Lookup, faultstore.Refuse)
		err := <-wait
		if took := time.Since(began).Round(time.Second); !errors.Is(err, holdfast.ErrUnavailable) || took != 32*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		began = time.Now()
		if err := c.waitFree(t.Context(), client, "x", waitForever); !errors.Is(err, holdfast.ErrUnavailable) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		store.Set(faultstore.Lookup, nil)
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		if err := c.waitFree(t.Context(), client, "x", 0); err != nil {
			t.Error(err)
		}
	})
}
