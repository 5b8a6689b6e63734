package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// Another Client that waits has the lock after one turn and one hold, however many goroutines wait
// here.
func TestOtherClientsAfterALocalTurn(t *testing.T) {
	for _, hold := range []time.Duration{100 * time.Microsecond, ms, 7 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			other := open(t, store, nil)
			busyCtx, cancel := context.WithCancel(ctx)
			c := open(t, store, nil)
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					for busyCtx.Err() == nil {
						if lock, err := c.Acquire(busyCtx, "a", nil); err == nil {
							time.Sleep(hold)
							release(t, lock)
						}
					}
				})
			}
			for range 20 {
				noErr(t, within(t, 0, 10*ms+hold, func() error { return other.Do(ctx, "a", nil, nothing) }))
				time.Sleep(20 * ms)
			}
			cancel()
			group.Wait()
		})
	}
}

// holdInTurn lets goroutines hold a lock one after the other, each for some time, after a first
// hold, of a single token, during which all of them wait.
func holdInTurn(t *testing.T, c *holdfast.Client, hold time.Duration, options ...*holdfast.Options) {
	t.Helper()
	first := acquire(t, c, "a", nil)
	last := first.Token()
	var held atomic.Bool
	var group sync.WaitGroup
	for _, o := range options {
		group.Go(func() {
			lock := acquire(t, c, "a", o)
			if held.Swap(true) || lock.Token() <= last {
				t.Errorf("token %d after %d, or two holders at once", lock.Token(), last)
			}
			last = lock.Token()
			time.Sleep(hold)
			held.Store(false)
			release(t, lock)
		})
		synctest.Wait()
	}
	release(t, first)
	group.Wait()
}

// Only holds with the same plain options are passed on, within the turn and the tokens of the
// store; and not a lease whose renewal is in flight or has failed: the next holder would have less
// time than one that was granted the lock.
func TestWhatIsPassedOn(t *testing.T) {
	plain := &holdfast.Options{}
	three, four := []*holdfast.Options{plain, plain, plain}, []*holdfast.Options{plain, plain, plain, plain}
	between := func(o holdfast.Options) []*holdfast.Options { return []*holdfast.Options{plain, &o, plain} }
	with := func(value string) *holdfast.Options {
		return &holdfast.Options{Metadata: map[string]string{"k": value}}
	}
	renewals := map[string]faultstore.Fault{"a renewal in flight": far(5 * time.Second), "a renewal that failed": faultstore.Refuse}
	for what, c := range map[string]struct {
		options  []*holdfast.Options
		requests int
		turn     time.Duration // Config.LocalTurn
		hold     time.Duration
	}{
		"plain options":            {four, 1, 0, 0},
		"end of the turn":          {four, 2, 0, 5 * ms},
		"end of the tokens":        {make([]*holdfast.Options, 2*driver.MaxTokens+1), 3, 0, 0},
		"a store of single tokens": {three, 3, 0, 0},
		"LocalTurn 1s":             {four, 1, time.Second, 5 * ms},
		"the greatest LocalTurn":   {four, 1, math.MaxInt64, time.Second},
		"LocalTurn off":            {three, 3, -1, 0},
		"another TTL":              {between(holdfast.Options{TTL: time.Hour}), 3, 0, 0},
		"the same metadata":        {[]*holdfast.Options{with("v"), with("v")}, 1, 0, 0},
		"other metadata":           {[]*holdfast.Options{with("v"), with("w")}, 2, 0, 0},
		"MaxHold":                  {between(holdfast.Options{MaxHold: time.Second}), 3, 0, 0},
		"NoRenew":                  {between(holdfast.Options{NoRenew: true}), 3, 0, 0},
		"Reentrant":                {between(holdfast.Options{Reentrant: true}), 3, 0, 0},
		"Detached":                 {between(holdfast.Options{Detached: true}), 3, 0, 0},
		"a renewal that was due":   {three[1:], 1, time.Hour, 10*time.Second + ms},
		"a renewal in flight":      {three[1:], 2, time.Hour, 10*time.Second + ms},
		"a renewal that failed":    {three[1:], 2, time.Hour, 11 * time.Second},
	} {
		virtualRun(t, what, func(t *testing.T, _ context.Context) {
			store := faultstore.Wrap(memstore.New())
			if what == "a store of single tokens" {
				store.Bend(faultstore.Bent(func(can *driver.Guarantees) { can.Tokens = 0 }))
			}
			store.Set(faultstore.Renew, renewals[what])
			client := open(t, store, &holdfast.Config{LocalTurn: c.turn})
			holdInTurn(t, client, c.hold, c.options...)
			if requests := store.Calls(faultstore.Acquire) - 1; requests != c.requests {
				t.Errorf("%d requests, want %d", requests, c.requests)
			}
			free(t, client, "a")
		})
	}
}

// inTurn returns a hold that was granted by the store and released, the one that it was passed on
// to, and those of further waiters.
func inTurn(t *testing.T, c *holdfast.Client, waiters int) (before, passed *holdfast.Lock, rest <-chan *holdfast.Lock) {
	t.Helper()
	first := acquire(t, c, "a", nil)
	locks := startWaiters(t, c, "a", nil, 2+waiters)
	release(t, first)
	before = <-locks
	time.Sleep(ms)
	release(t, before)
	return before, <-locks, locks
}

// A lock that was passed on is renewed, lost at its deadline, and shown as what it is.
func TestHoldThatWasPassedOn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		before, lock, _ := inTurn(t, c, 0)
		if lock.Token() != before.Token()+1 || lock.Since() != before.Since().Add(ms) || !lock.Deadline().Equal(before.Deadline()) {
			t.Errorf("%v since %v until %v after %v since %v until %v", lock, lock.Since(), lock.Deadline(), before, before.Since(), before.Deadline())
		}
		if before.Context().Err() == nil || lock.Context().Err() != nil {
			t.Errorf("the contexts: %v, %v", before.Context().Err(), lock.Context().Err())
		}
		if err := failure(c.TryAcquire(ctx, "a", nil)); !heldError(t, err).Self {
			t.Errorf("a try: %v", err)
		}
		time.Sleep(time.Hour)
		noErr(t, lock.Err())
		store.Set(faultstore.Renew, faultstore.Refuse)
		<-lock.Context().Done()
		wantErr(t, lock.Release(), holdfast.ErrLost, holdfast.ErrExpired)
	})
}

// Nothing is passed on once Close has begun, and the lock is released once.
func TestCloseInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := holdfast.New(store, &holdfast.Config{LocalTurn: time.Hour})
		var group sync.WaitGroup
		var closing atomic.Bool
		for range 20 {
			group.Go(func() {
				for {
					lock, err := c.Acquire(ctx, "a", nil)
					if err != nil {
						wantErr(t, err, holdfast.ErrClosed)
						return
					}
					if closing.Load() {
						t.Error("passed on after Close has begun")
					}
					time.Sleep(ms)
					_ = lock.Release()
				}
			})
		}
		time.Sleep(100*ms + ms/2)
		closing.Store(true)
		noErr(t, c.Close())
		free(t, open(t, store, nil), "a")
		group.Wait()
	})
}

// A break ends the hold that the lease has been passed on to, under its own token or that of the
// store, through any Client, and the turn with it. The tokens go on rising.
func TestBreakInALocalTurn(t *testing.T) {
	for _, here := range []bool{true, false} {
		for _, way := range []string{"own token", "token of the store", "any"} {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				c, by := open(t, store, &holdfast.Config{LocalTurn: time.Hour}), open(t, store, nil)
				if here {
					by = c
				}
				_, lock, rest := inTurn(t, c, 1)
				token := map[string]int64{"own token": lock.Token(), "token of the store": lookup(t, c, "a").Token}[way]
				noErr(t, failure(by.Break(ctx, "a", token)))
				synctest.Wait()
				wantErr(t, lock.Err(), holdfast.ErrTaken)
				_ = lock.Release()
				next := <-rest
				if next.Token() <= lock.Token() {
					t.Errorf("%s: token %d after %d", way, next.Token(), lock.Token())
				}
				release(t, next)
			})
		}
	}
}

// A lease that was extended beyond its TTL is not passed on, since the next hold must end in time
// if its process dies; nor one whose renewal has become due while the machine was suspended.
// ReleaseKeep passes nothing on.
func TestWhatEndsALocalTurn(t *testing.T) {
	for _, what := range []string{"kept", "extended", "suspended"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			suspend := suspendable(t)
			c, store := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
			_, lock, rest := inTurn(t, c, 1)
			sent := store.Calls(faultstore.Acquire)
			var next *holdfast.Lock
			noErr(t, within(t, 0, time.Minute+10*ms, func() error {
				switch what {
				case "kept":
					noErr(t, lock.ReleaseKeep(time.Minute))
					waits(t, rest)
					time.Sleep(time.Minute - ms)
					waits(t, rest)
				case "extended":
					noErr(t, lock.Extend(ctx, time.Hour))
				case "suspended":
					suspend(15 * time.Second)
				}
				_ = lock.Release()
				next = <-rest
				return nil
			}))
			if n, rec := store.Calls(faultstore.Acquire)-sent, lookup(t, c, "a"); rec.Remaining > holdfast.DefaultTTL || n != 1 {
				t.Errorf("%s: the next hold lasts %v, after %d requests, want one", what, rec.Remaining, n)
			}
			release(t, next)
		})
	}
}

// A hold of which an answer has told that it is lost is not passed on in the moment before it ends.
// The clock is slow to read, and notices contend for the mutex, which makes that moment long.
func TestLostHoldIsNotPassedOn(t *testing.T) {
	var slow atomic.Bool
	defer holdfast.SetBootClock(func() time.Duration {
		if slow.Load() {
			time.Sleep(2 * ms)
		}
		return 0
	})()
	for try := range 5 {
		store := faultstore.Wrap(memstore.New())
		spy := spyOn(store)
		waiting := make(chan struct{}, 2)
		c := holdfast.New(spy, &holdfast.Config{LocalTurn: time.Minute, Hooks: onEvent(holdfast.EventWaiting, func(holdfast.Event) {
			waiting <- struct{}{}
		})})
		other := holdfast.New(store, nil)
		first := acquire(t, c, "a", nil)
		acquire(t, c, "busy", nil)
		locks := make(chan *holdfast.Lock, 2)
		for range 2 {
			go func() {
				lock, _ := c.Acquire(context.Background(), "a", nil)
				locks <- lock
			}()
			<-waiting
		}
		release(t, first)
		second := <-locks
		answered := make(chan struct{})
		store.Once(faultstore.Renew, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			slow.Store(true)
			for range 3 {
				go func() {
					for slow.Load() {
						spy.send("busy", "", 1<<40)
					}
				}()
			}
			close(answered)
			return nil
		})
		breakLock(t, other, "a")
		<-answered
		time.Sleep(time.Duration(try) * ms) // Release comes at another moment each time.
		_ = second.Release()
		slow.Store(false)
		next := <-locks
		rival, err := other.TryAcquire(context.Background(), "a", nil)
		if err == nil && next.Err() == nil {
			t.Fatalf("%v and %v", rival, next)
		}
		noErr(t, errors.Join(c.Close(), other.Close()))
	}
}

// A hold that is over is not passed on, also before the timer has ended it.
func TestExpiredLeaseIsNotPassedOn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		suspend := suspendable(t)
		c := open(t, faultstore.Wrap(memstore.New()), &holdfast.Config{LocalTurn: time.Minute, TTL: time.Second})
		began := time.Now()
		var late, group sync.WaitGroup
		var firsts []*holdfast.Lock
		for i := range 300 { // It takes its time with them.
			name := fmt.Sprint(i)
			before := acquire(t, c, name, nil)
			locks := startWaiters(t, c, name, nil, 1)
			late.Go(func() {
				lock, err := c.Acquire(ctx, name, nil)
				if err != nil || lock.Deadline().Before(time.Now()) {
					t.Errorf("Acquire: %v, %v, want a lock that holds", lock, err)
				}
				_ = lock.Release()
			})
			synctest.Wait()
			release(t, before)
			firsts = append(firsts, <-locks)
		}
		suspend(2 * time.Second)
		for _, lock := range firsts {
			group.Go(func() {
				time.Sleep(time.Until(began.Add(time.Second / 3))) // when the timer finds that they are over
				_ = lock.Release()
			})
		}
		group.Wait()
		late.Wait()
	})
}
