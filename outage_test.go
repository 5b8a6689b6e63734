package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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

// announce refuses each request: the store can serve after a time.
func announce(after time.Duration) faultstore.Fault {
	return fails(&driver.RetryError{Err: errors.New("loading"), After: after})
}

// unsent is a request that was not sent in time, as behind one that hangs.
func unsent(ctx context.Context, _ faultstore.Op, _ func()) error {
	<-ctx.Done()
	return driver.NotApplied(ctx.Err())
}

// A caller of an outage begins at a time after it does, and returns within a time after that.
type outageCaller struct {
	at     time.Duration
	o      holdfast.Options
	want   error
	within time.Duration
}

// Each caller bears an outage for Config.MaxOutage, whether others wait before it or not, and
// whenever it comes. It gets the lock if the outage is shorter. A store that refuses the very first
// request fails at once.
func TestOutages(t *testing.T) {
	alone := func(want error, within time.Duration) []outageCaller {
		return []outageCaller{{ms, holdfast.Options{}, want, within}}
	}
	waiting := slices.Repeat([]outageCaller{{at: -time.Minute, within: time.Minute}}, 10)
	for name, o := range map[string]struct {
		holder         string // the client that has the lock until the outage begins
		acquire, renew faultstore.Fault
		lasts          time.Duration
		callers        []outageCaller
	}{
		"refused":             {"", faultstore.Refuse, nil, time.Hour, alone(faultstore.ErrRefused, ms)},
		"not supported":       {"", fails(driver.ErrUnsupported), nil, time.Hour, alone(driver.ErrUnsupported, 0)},
		"hung":                {"", faultstore.Hang, faultstore.Hang, time.Hour, alone(holdfast.ErrUnavailable, 23*time.Second)},
		"not sent":            {"", unsent, nil, 8 * time.Second, alone(nil, 15*time.Second)},
		"hung, then refused":  {"", faultstore.Hang, faultstore.Refuse, 6 * time.Second, alone(nil, 10*time.Second)},
		"announced too long":  {"", announce(time.Hour), nil, 5 * time.Second, alone(nil, 7*time.Second)},
		"behind other":        {"other", faultstore.Refuse, faultstore.Refuse, 9 * time.Second, waiting},
		"behind a hold":       {"self", faultstore.Refuse, faultstore.Refuse, 9 * time.Second, waiting},
		"one refused request": {"self", faultstore.Refuse, nil, ms, waiting},
		"hung in line": {"", faultstore.Hang, faultstore.Hang, time.Hour, slices.Repeat([]outageCaller{
			{ms, holdfast.Options{}, holdfast.ErrUnavailable, 23 * time.Second},
		}, 20)},
		"behind a head that gave up": {"", faultstore.Hang, faultstore.Hang, time.Hour, []outageCaller{
			{ms, holdfast.Options{TTL: time.Hour, Wait: time.Second}, context.DeadlineExceeded, 2 * time.Second},
			{2 * ms, holdfast.Options{TTL: time.Hour}, holdfast.ErrUnavailable, 30 * time.Second},
		}},
		"announced to waiters": {"other", announce(15 * time.Second), announce(15 * time.Second), 15 * time.Second, waiting[:1]},
		"announced, with a deadline behind one without": {"self", announce(0), nil, 30 * time.Second, []outageCaller{
			{-time.Second, holdfast.Options{}, holdfast.ErrUnavailable, 12 * time.Second},
			{-ms, holdfast.Options{Wait: time.Hour}, nil, 40 * time.Second},
		}},
		"announced, without a deadline behind one with": {"self", announce(0), nil, 30 * time.Second, []outageCaller{
			{-time.Second, holdfast.Options{Wait: time.Hour}, nil, 40 * time.Second},
			{-ms, holdfast.Options{}, holdfast.ErrUnavailable, 12 * time.Second},
		}},
		"late": {"shared", faultstore.Refuse, nil, 14 * time.Second, []outageCaller{
			{ms, holdfast.Options{Shared: true}, holdfast.ErrUnavailable, 12 * time.Second},
			{9 * time.Second, holdfast.Options{Shared: true}, nil, 10 * time.Second},
		}},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, &holdfast.Config{LocalTurn: -1})
			var first *holdfast.Lock
			switch o.holder {
			case "other":
				first = acquire(t, open(t, store.Store, nil), "a", nil)
			case "self":
				first = acquire(t, c, "a", nil)
			case "shared":
				defer acquire(t, c, "a", shared).Release()
			}
			begins := time.Now().Add(2 * time.Minute)
			var group sync.WaitGroup
			for i, caller := range o.callers {
				group.Go(func() {
					time.Sleep(time.Until(begins) + caller.at)
					lock, err := c.Acquire(ctx, "a", &caller.o)
					if took := time.Since(begins) - max(caller.at, 0); !errors.Is(err, caller.want) || took > caller.within {
						t.Errorf("caller %d: %v after %v", i, err, took)
					}
					if lock != nil {
						release(t, lock)
					}
				})
			}
			time.Sleep(time.Until(begins))
			store.Set(faultstore.Acquire, o.acquire)
			store.Set(faultstore.Renew, o.renew)
			if o.renew != nil {
				store.Set(faultstore.Notice, loseNotice)
			}
			if first != nil {
				release(t, first)
			}
			time.Sleep(min(o.lasts, time.Minute))
			setAll(store, nil)
			store.Set(faultstore.Notice, nil)
			group.Wait()
		})
	}
}

// During an outage no verb reports that a name is held which nobody holds: not the first try, which
// meets with the silence itself, nor any later one, which finds that what the first may have been
// granted is still being given back.
func TestOutageIsNeverHeld(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"hung": faultstore.Hang, "reply lost": faultstore.LoseReply, "granted, hung": applyAndHang, "refused": faultstore.Refuse,
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			setAll(store, fault)
			// A notice would show a grant whose reply was lost.
			store.Set(faultstore.Notice, loseNotice)
			var group sync.WaitGroup
			unavailable := func(call func() error) {
				group.Go(func() {
					err := within(t, 0, 7*time.Second, call)
					if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, holdfast.ErrHeld) {
						t.Error(err)
					}
				})
			}
			for i := range 140 {
				unavailable(func() error { return failure(c.TryAcquire(ctx, "a", nil)) })
				if i%10 == 0 {
					unavailable(func() error { return failure(c.Acquire(ctx, "a", &holdfast.Options{Wait: 2 * time.Second})) })
				}
				time.Sleep(100 * ms)
			}
			group.Wait()
			setAll(store, nil)
			time.Sleep(time.Minute)
			noErr(t, failure(c.TryAcquire(ctx, "a", nil)))
		})
	}
}

// A release that the store does not answer leaves it unknown whether the name is held, until it
// answers. That this Client holds it is said to those that wait behind it as long as it can be
// true: a TTL after the last answer of the store nobody knows.
func TestUnansweredReleaseIsNotHeld(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{TTL: 2 * time.Second, MaxOutage: time.Minute})
		lock := acquire(t, c, "a", nil)
		setAll(store, faultstore.Hang)
		released := later(lock.Release)
		go c.Acquire(ctx, "a", &holdfast.Options{Wait: 30 * time.Second}) // the next head
		var group sync.WaitGroup
		for at := range 20 {
			group.Go(func() { wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrUnavailable) })
			limited, cancel := context.WithTimeout(ctx, ms)
			err := failure(c.Acquire(limited, "a", nil))
			cancel()
			if held := errors.Is(err, holdfast.ErrHeld); held != (at < 2) {
				t.Errorf("after %ds: %v", at, err)
			}
			time.Sleep(999 * ms)
		}
		group.Wait()
		wantErr(t, <-released, holdfast.ErrUnavailable)
	})
}

// A try of a name that another goroutine of its Client waits for sends a request of its own. A
// reentrant hold from such a try can be joined.
func TestTryBesideAWaiter(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Silent()
		slow := &holdfast.Config{Backoff: holdfast.Backoff{Min: time.Hour, Max: time.Hour}}
		c := open(t, store, slow)
		other := acquire(t, open(t, store.Store, &holdfast.Config{Holder: "other"}), "a", &holdfast.Options{TTL: 24 * time.Hour})
		waited := startWaiters(t, c, "a", nil, 1)
		time.Sleep(time.Second)
		if held := heldError(t, failure(c.TryAcquire(ctx, "a", nil))); held.Record.Holder != "other" {
			t.Errorf("while another holds it: %v", held)
		}
		store.Once(faultstore.Acquire, faultstore.Refuse)
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrUnavailable)
		release(t, other)
		reentrant := &holdfast.Options{Reentrant: true}
		lock, err := c.TryAcquire(ctx, "a", reentrant)
		if err != nil {
			t.Fatalf("a try of a free name: %v", err)
		}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		inner, err := c.Acquire(limited, "a", reentrant)
		if err != nil {
			t.Fatalf("a reentrant call does not join: %v", err)
		}
		release(t, inner)
		if held := heldError(t, failure(c.TryAcquire(ctx, "a", nil))); !held.Self || len(c.Locks()) != 1 {
			t.Errorf("a try of what this Client has: %v, with %v", held, c.Locks())
		}
		release(t, lock)
		release(t, <-waited)
	})
}

// An answer of the server that it can serve later is waited for as long as the caller is ready to
// wait, also if it is the first answer, and longer than an outage is borne; without a bound of the
// caller's own, for that long. The log says so once.
func TestRetryErrorIsWaitedOut(t *testing.T) {
	for name, after := range map[string]time.Duration{"known": 15 * time.Second, "unknown": 0} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			var log logText
			c, store := faulty(t, &holdfast.Config{Logger: log.logger()})
			serves := time.Now().Add(15 * time.Second)
			store.Set(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
				if left := time.Until(serves); left > 0 {
					return announce(min(after, left))(ctx, op, apply)
				}
				apply()
				return nil
			})
			wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrUnavailable)
			err := within(t, 3*time.Second, 3*time.Second, func() error {
				return failure(c.Acquire(ctx, "a", &holdfast.Options{Wait: 3 * time.Second}))
			})
			wantErr(t, err, holdfast.ErrUnavailable, context.DeadlineExceeded)
			lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Minute})
			if err != nil {
				t.Fatalf("with Wait 1m: %v", err)
			}
			if late := time.Since(serves); late > 300*ms {
				t.Errorf("acquired %v after the server serves again", late)
			}
			release(t, lock)

			serves = time.Now().Add(time.Hour)
			warnings := strings.Count(log.String(), "level=WARN")
			err = within(t, 10*time.Second+after, 26*time.Second+after, func() error { return failure(c.Acquire(ctx, "a", nil)) })
			if wantErr(t, err, holdfast.ErrUnavailable); !strings.HasSuffix(fmt.Sprint(err), "given up after an outage of 10s") {
				t.Errorf("it does not say how long it has tried: %v", err)
			}
			if text := log.String(); strings.Count(text, "level=WARN") != warnings+1 || !strings.Contains(text, "trying again") || !strings.Contains(text, "loading") {
				t.Errorf("the log: %q", text)
			}
		})
	}
}

// A try goes on if the store announces that it can answer within moments, as a quorum whose nodes
// were divided does, and not for longer than a request may take. Any other announcement is its
// error.
func TestTryOfADividedQuorum(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		often int
		want  error
		took  time.Duration
	}{
		{20 * ms, 3, nil, 60 * ms},
		{20 * ms, math.MaxInt, holdfast.ErrUnavailable, 3 * time.Second},
		{0, 3, holdfast.ErrUnavailable, 0},
		{time.Second, 3, holdfast.ErrUnavailable, 0},
	} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			left := test.often
			store.Set(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
				if left--; left >= 0 {
					return announce(test.after)(ctx, op, apply)
				}
				apply()
				return nil
			})
			o := &holdfast.Options{Wait: ms} // which a try ignores
			err := within(t, test.took, test.took+50*ms, func() error { return failure(c.TryAcquire(ctx, "a", o)) })
			if !errors.Is(err, test.want) {
				t.Errorf("after %v, %d times: %v", test.after, test.often, err)
			}
		})
	}
}

// A canceled Acquire returns when the request in flight is answered, at the deadline of its context
// or after RequestTimeout at the latest, and what the store granted all the same is released.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fault              faultstore.Fault
		canceled, deadline time.Duration // when it returns
	}{
		"granted after the cancel": {func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(time.Second)
			apply()
			return nil
		}, time.Second, time.Second}, // They hold up the caller's goroutine.
		"granted before it":         {answersLate(time.Second), time.Second, time.Second},
		"granted, reply lost":       {applyAndHang, 3 * time.Second, 500 * ms},
		"granted, every reply lost": {faultstore.LoseReply, 500 * ms, 500 * ms},
	} {
		for _, cancels := range []bool{false, true} {
			virtualRun(t, fmt.Sprint(name, " ", cancels), func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				if store.Once(faultstore.Acquire, test.fault); name == "granted, every reply lost" {
					store.Set(faultstore.Acquire, test.fault)
					store.Set(faultstore.Renew, test.fault)
				}
				limited, cancel := context.WithTimeout(ctx, 500*ms)
				want, returns := context.DeadlineExceeded, test.deadline
				if cancels {
					limited, cancel = context.WithCancel(ctx)
					time.AfterFunc(500*ms, cancel)
					want, returns = context.Canceled, test.canceled
				}
				defer cancel()
				wantErr(t, within(t, returns, returns, func() error { return failure(c.Acquire(limited, "a", nil)) }), want)
				time.Sleep(25 * time.Second)
				free(t, c, "a")
			})
		}
	}
}

// A wait between two requests ends at once with its context.
func TestCanceledPauseEndsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Silent()
		acquire(t, open(t, store, nil), "a", nil)
		store.Set(faultstore.Acquire, far(10*ms))
		const bound = 20*time.Second + 7*ms
		limited, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		c := open(t, store, nil)
		err := within(t, bound, bound+10*ms, func() error { return failure(c.Acquire(limited, "a", nil)) })
		wantErr(t, err, context.DeadlineExceeded, holdfast.ErrHeld)
	})
}

// A wait that is cut short while the store does not answer says so, and does not forget what the
// store said before.
func TestWaitCutShortInAnOutageSaysWhy(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		o := &holdfast.Options{Wait: time.Second}
		store.Set(faultstore.Acquire, faultstore.Hang)
		wantErr(t, failure(c.Acquire(ctx, "a", o)), context.DeadlineExceeded, holdfast.ErrUnavailable)
		fire := errors.New("the disk is on fire")
		store.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
			store.Set(faultstore.Acquire, faultstore.Hang)
			return fire
		})
		wantErr(t, failure(c.Acquire(ctx, "a", o)), context.DeadlineExceeded, fire)
	})
}

// A store that hangs does not hold up anybody longer than the bounds say.
func TestHungStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		setAll(store, faultstore.Hang)
		store.Set(faultstore.Lookup, faultstore.Hang)
		store.Set(faultstore.Break, faultstore.Hang)
		for _, verb := range []struct {
			bound time.Duration
			call  func() error
		}{
			{3 * time.Second, func() error { return lock.Extend(ctx, time.Minute) }},
			{3 * time.Second, func() error { return failure(c.Lookup(ctx, "a")) }},
			{3 * time.Second, func() error { return failure(c.Break(ctx, "a", 0)) }},
			{7 * time.Second, func() error { return failure(c.TryAcquire(ctx, "b", nil)) }},
			{10 * time.Second, lock.Release},
		} {
			wantErr(t, within(t, 0, verb.bound, verb.call), holdfast.ErrUnavailable)
		}
	})
}

// A request that arrives after its caller has given up or has asked anew, and after a first release
// has found nothing, does not keep the name for its TTL: the release is sent again.
func TestRequestThatArrivesAfterItsRelease(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		late := func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.AfterFunc(1500*ms, apply)
			return errors.New("connection reset")
		}
		for _, givesUp := range []bool{false, true} {
			store.Once(faultstore.Acquire, late)
			if givesUp {
				time.AfterFunc(ms/2, cancel) // before it looks
				wantErr(t, failure(c.Acquire(limited, "a", nil)), context.Canceled)
			} else {
				release(t, acquire(t, c, "a", nil))
			}
			time.Sleep(1600 * ms)
			lookup(t, c, "a") // The request has arrived.
			time.Sleep(2 * time.Second)
			free(t, c, "a")
		}
	})
}

// A try is answered within a few requests though other goroutines of its Client take and release
// the lock all the time, so that there is always a request under way.
func TestTryInACrowd(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		setAll(store, far(6*ms))
		var group sync.WaitGroup
		over := time.Now().Add(5 * time.Second)
		for range 8 {
			group.Go(func() {
				for time.Now().Before(over) {
					release(t, acquire(t, c, "a", nil))
				}
			})
		}
		time.Sleep(ms)
		for time.Now().Before(over) {
			var lock *holdfast.Lock
			err := within(t, 0, 50*ms, func() (err error) { lock, err = c.TryAcquire(ctx, "a", nil); return err })
			if lock != nil {
				release(t, lock)
			} else {
				wantErr(t, err, holdfast.ErrHeld)
			}
			time.Sleep(ms) // An answer without a request takes no time.
		}
		group.Wait()
	})
}

// A wait that ends in a crowd on a healthy store ends with ErrHeld, whatever request is under way
// at that moment, of one Client and of several, on each kind of store.
func TestWaitInACrowdEndsWithHeld(t *testing.T) {
	for name, kind := range kinds {
		for _, clients := range []int{1, 10} {
			virtualRun(t, fmt.Sprint(name, " ", clients), func(t *testing.T, ctx context.Context) {
				memory := memstore.New()
				var granted, refused atomic.Int32
				var group sync.WaitGroup
				var c *holdfast.Client
				for i := range 200 {
					if i < clients {
						store := kind(faultstore.Wrap(memory))
						setAll(store, far(4*ms))
						c = open(t, store, &holdfast.Config{LocalTurn: -1}) // each caller makes requests
					}
					c := c
					group.Go(func() {
						lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: 500*ms + time.Duration(i)*ms/4})
						if err != nil {
							refused.Add(1)
							wantErr(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
							return
						}
						granted.Add(1)
						time.Sleep(5 * ms)
						release(t, lock)
					})
				}
				group.Wait()
				if granted.Load() == 0 || refused.Load() == 0 {
					t.Errorf("%d granted, %d refused", granted.Load(), refused.Load())
				}
			})
		}
	}
}

// Sixteen goroutines that take one name again and again, in one Client and in a Client each, get
// the same share of it, under tokens that rise.
func TestSharesAreFair(t *testing.T) {
	for clients, name := range map[int]string{1: "one Client", 16: "a Client each"} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			var shares [16]float64
			var last int64
			var c *holdfast.Client
			var group sync.WaitGroup
			over := time.Now().Add(10 * time.Second)
			for i := range shares {
				if i < clients {
					c = open(t, store, nil)
				}
				c := c
				group.Go(func() {
					for time.Now().Before(over) {
						lock := acquire(t, c, "a", nil)
						if shares[i]++; lock.Token() <= last {
							t.Errorf("the token %d after %d", lock.Token(), last)
						}
						last = lock.Token()
						time.Sleep(ms)
						release(t, lock)
					}
				})
			}
			group.Wait()
			var sum, squares float64
			for _, share := range shares {
				sum, squares = sum+share, squares+share*share
			}
			if jain := sum * sum / (16 * squares); jain < 0.99 || sum < 1000 {
				t.Errorf("%v holds, Jain's index %.3f: %v", sum, jain, shares)
			}
		})
	}
}

// A call with MaxAttempts has no place in the queue of the store. It does not hold up the callers
// of its Client that have one.
func TestMaxAttemptsHoldsUpNobody(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		ctx, cancel := context.WithCancel(ctx)
		for range 3 { // They keep the name busy.
			other := open(t, store, &holdfast.Config{LocalTurn: -1})
			go func() {
				for ctx.Err() == nil {
					_ = other.Do(ctx, "a", nil, func(context.Context) error { time.Sleep(100 * ms); return nil })
				}
			}()
		}
		c := open(t, store, nil)
		time.Sleep(time.Second)
		go c.Acquire(ctx, "a", &holdfast.Options{MaxAttempts: math.MaxInt})
		time.Sleep(10 * ms)
		noErr(t, c.Do(ctx, "a", &holdfast.Options{Wait: time.Second}, nothing)) // Its turn comes in 0.3 s.
		cancel()
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

// A waiter whose TTL is below a few round trips learns that its place is over, and begins anew.
func TestWaiterWithAShortTTL(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, net := faulty(t, nil)
		a := open(t, net.Store, nil)
		first := acquire(t, a, "n", nil)
		setAll(net, answersIn(30*ms))
		time.AfterFunc(time.Second, func() { _ = first.Release() })
		noErr(t, within(t, time.Second, 2*time.Second, func() error { return failure(c.Acquire(ctx, "n", &holdfast.Options{TTL: 100 * ms})) }))
	})
}

// The Backoff of attempts is not that of the request after one that failed: a single attempt goes
// on soon, and a waiter keeps its place and its turn.
func TestBackoffAfterAFailure(t *testing.T) {
	config := &holdfast.Config{Backoff: holdfast.Backoff{Min: time.Hour}}
	virtualRun(t, "single attempt", func(t *testing.T, ctx context.Context) {
		c, net := faulty(t, config)
		net.Once(faultstore.Acquire, faultstore.LoseReply)
		noErr(t, within(t, 0, time.Second, func() error { return failure(c.TryAcquire(ctx, "n", nil)) }))
	})
	for name, test := range map[string]struct {
		renew faultstore.Fault
		ttl   time.Duration
	}{
		"waiter, refused":   {faultstore.Refuse, 0},
		"waiter, hung":      {faultstore.Hang, 0},
		"waiter, short TTL": {faultstore.Refuse, 300 * ms},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			c, net := faulty(t, config)
			a, b := open(t, net.Store, nil), open(t, net.Store, nil)
			first := acquire(t, a, "n", nil)
			got := startWaiters(t, c, "n", &holdfast.Options{TTL: test.ttl}, 1)
			behind := startWaiters(t, b, "n", nil, 1)
			net.Once(faultstore.Renew, test.renew)
			time.Sleep(10 * time.Second)
			release(t, first)
			waits(t, behind)
			noErr(t, within(t, 0, time.Second, func() error { return (<-got).Release() }))
			release(t, <-behind)
		})
	}
}

// That a name was held is known from the last renewal of the hold, if its release is not answered.
func TestHeldAsTheLastRenewalHasShown(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		time.Sleep(time.Hour)
		result := later(func() error { return failure(c.Acquire(ctx, "a", &holdfast.Options{Wait: 8 * time.Second})) })
		setAll(store, faultstore.Hang)
		go lock.Release()
		wantErr(t, <-result, holdfast.ErrHeld, context.DeadlineExceeded)
	})
}

// A single attempt ends on a store whose grants come after their end: one with a slow disk, or
// between what is relied on and the TTL.
func TestTryWhoseGrantsComeLate(t *testing.T) {
	for ttl, late := range map[time.Duration]time.Duration{500 * ms: 600 * ms, 10 * ms: 9 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			store.Set(faultstore.Acquire, far(late))
			store.Set(faultstore.Renew, far(late))
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			call := func() error { return failure(c.TryAcquire(ctx, "a", &holdfast.Options{TTL: ttl})) }
			wantErr(t, within(t, 0, 10*time.Second, call), holdfast.ErrUnavailable)
		})
	}
}

// A store that takes 300 ms for an answer serves a waiter after an outage that outlasted its place,
// and one whose first reply was lost.
func TestSlowStoreServes(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{MaxOutage: time.Minute})
		waiting := later(func() error { return failure(c.Acquire(ctx, "a", nil)) })
		setAll(store, faultstore.Hang)
		time.Sleep(6 * time.Second)
		setAll(store, answersIn(300*ms))
		noErr(t, within(t, 0, 10*time.Second, func() error { return <-waiting }))
		store.Once(faultstore.Acquire, applyAndHang)
		noErr(t, failure(c.Acquire(ctx, "b", &holdfast.Options{TTL: 3 * time.Second})))
	})
}

// An outage that is over does not count for the next caller in line, though its end was seen by the
// hold of the one before alone.
func TestOutageBeforeAHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		first := acquire(t, open(t, store.Store, nil), "a", nil)
		store.Once(faultstore.Acquire, applyAndHang) // A notice grants it.
		head := later(func() error {
			return c.Do(ctx, "a", nil, func(context.Context) error { time.Sleep(30 * time.Second); return nil })
		})
		next := later(func() error { return failure(c.Acquire(ctx, "a", nil)) })
		time.Sleep(time.Second)
		release(t, first)
		time.Sleep(20 * time.Second)
		store.Once(faultstore.Acquire, faultstore.LoseReply)
		noErr(t, <-head)
		noErr(t, <-next)
	})
}

// That a lock of this client was held is believed for a TTL after the last answer at most, and not
// after its Break.
func TestHeldUntilTheHeadEnds(t *testing.T) {
	for how, test := range map[string]struct {
		wait  time.Duration
		fault faultstore.Fault
		end   func(t *testing.T, c *holdfast.Client, lock *holdfast.Lock)
	}{
		"released after a long Extend": {9 * time.Second, announce(0), func(t *testing.T, _ *holdfast.Client, lock *holdfast.Lock) {
			noErr(t, lock.Extend(t.Context(), time.Hour))
			release(t, lock)
		}},
		"broken": {time.Second, faultstore.Hang, func(t *testing.T, c *holdfast.Client, _ *holdfast.Lock) {
			_, err := c.Break(t.Context(), "a", 0)
			noErr(t, err)
		}},
	} {
		virtualRun(t, how, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			o := &holdfast.Options{TTL: 2 * time.Second, Wait: test.wait}
			lock := acquire(t, c, "a", o)
			waited := later(func() error { return failure(c.Acquire(ctx, "a", o)) })
			store.Set(faultstore.Acquire, test.fault)
			test.end(t, c, lock)
			if err := <-waited; errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("%v, want unavailable", err)
			}
		})
	}
}

// A place is renewed within its time, also while the server announces that it cannot serve now.
func TestPlaceDuringAnAnnouncedPause(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		server := memstore.New()
		store := faultstore.Wrap(server)
		lock := acquire(t, open(t, server, nil), "a", nil)
		c := open(t, store, nil)
		store.Once(faultstore.Renew, announce(time.Second))
		waited := later(func() error { return failure(c.Acquire(ctx, "a", &holdfast.Options{TTL: time.Second})) })
		time.Sleep(5 * time.Second)
		release(t, lock)
		if noErr(t, <-waited); store.Calls(faultstore.Acquire) != 1 {
			t.Errorf("%d entries were requested, want 1", store.Calls(faultstore.Acquire))
		}
	})
}
