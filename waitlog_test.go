package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

const selfWaitText = "waiting for a lock that this very client holds"

// A wait for a lock that the Client has adopted is warned of, once.
func TestWaitForAnAdoptedLockIsWarnedOf(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		store := memstore.New()
		c := open(t, store, &holdfast.Config{Holder: "me", Logger: text.logger(slog.LevelWarn)})
		other := open(t, store, &holdfast.Config{Holder: "other"})
		ticket, err := acquire(t, other, "a", &holdfast.Options{Detached: true}).HandOver()
		if err != nil {
			t.Fatal(err)
		}
		lock, err := c.Adopt(ctx, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		foreign := acquire(t, other, "b", nil)
		var group sync.WaitGroup
		for i, name := range []string{"a", "a", "a", "b"} {
			group.Go(func() {
				_, err := c.Acquire(ctx, name, &holdfast.Options{Wait: time.Duration(9-i) * 20 * time.Second})
				var held *holdfast.HeldError
				if !errors.As(err, &held) || held.Self != (name == "a") {
					t.Error(err)
				}
			})
			synctest.Wait() // The first is the head, and the others wait.
		}
		group.Go(func() {
			_, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: 3 * time.Second})
			wantErr(t, err, holdfast.ErrHeld)
		})
		time.Sleep(3 * time.Second)
		if text.String() != "" {
			t.Errorf("log after 3s:\n%s", &text)
		}
		group.Wait()
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, selfWaitText) || !strings.Contains(got, "name=a holder=other") {
			t.Errorf("log:\n%s", got)
		}
		release(t, lock)
		release(t, foreign)
	})
}

// A wait for another goroutine of the Client is warned of once for each hold, also
// if other holds were in the way first, and if the line is never empty.
func TestSelfWaitIsWarnedOfForEachHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		c := open(t, memstore.New(), &holdfast.Config{Logger: text.logger(slog.LevelWarn)})
		began := time.Now()
		warned := func() int { return strings.Count(text.String(), selfWaitText) }
		var group sync.WaitGroup
		lock := acquire(t, c, "a", nil)
		for _, hold := range []time.Duration{10 * time.Second, 2 * time.Second, 10 * time.Second, time.Second, 0} {
			group.Go(func() {
				lock := acquire(t, c, "a", nil)
				time.Sleep(hold)
				release(t, lock)
			})
			time.Sleep(ms)
		}
		time.Sleep(2*time.Second - 5*ms)
		release(t, lock) // after 2 s
		for _, want := range []struct {
			after  time.Duration
			warned int
		}{
			{3500 * ms, 0},  // the first hold was in the way when the wait began
			{6500 * ms, 1},  // the second, for longer than a request may take
			{12500 * ms, 1}, // the third began after 12 s
			{23500 * ms, 2}, // the fourth, after 14 s
			{30 * time.Second, 2},
		} {
			time.Sleep(want.after - time.Since(began))
			if n := warned(); n != want.warned {
				t.Errorf("after %v: %d warnings, want %d:\n%s", want.after, n, want.warned, &text)
			}
		}
		group.Wait()
	})
}

// A try does not wait, and is not warned of, however long its answer takes.
func TestTryOfAnAdoptedLockIsNotWarnedOf(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var text logText
		c, store := faulty(t, &holdfast.Config{Logger: text.logger(slog.LevelWarn)})
		ticket, err := acquire(t, open(t, store, nil), "a", &holdfast.Options{Detached: true}).HandOver()
		if err != nil {
			t.Fatal(err)
		}
		lock, err := c.Adopt(ctx, ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		store.Once(faultstore.Acquire, faultstore.Hang)
		_, err = c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		if strings.Contains(text.String(), selfWaitText) {
			t.Errorf("log:\n%s", &text)
		}
		release(t, lock)
	})
}
