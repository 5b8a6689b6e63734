package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Locks are held for an hour, and not renewed after that. One request in 10 s renews all of them,
// though they were acquired over the whole of 10 s.
func TestManyLocksAreRenewedTogether(t *testing.T) {
	for _, n := range []int{1, 500} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			var locks []*holdfast.Lock
			for i := range n {
				locks = append(locks, acquire(t, c, fmt.Sprint("lock ", i), nil))
				time.Sleep(20 * ms)
			}
			time.Sleep(time.Hour)
			for _, lock := range locks {
				noErr(t, lock.Err())
			}
			requests := store.Calls(faultstore.Renew)
			if each := 60 * 6; requests < each || requests > each+2 {
				t.Errorf("%d requests in an hour", requests)
			}
			noErr(t, c.ReleaseAll())
			time.Sleep(time.Hour)
			if store.Calls(faultstore.Renew) != requests {
				t.Error("renewed after the release")
			}
		})
	}
}

func TestOneFailedRenewalIsNoLoss(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"refused": faultstore.Refuse, "reply lost": faultstore.LoseReply, "hung": faultstore.Hang,
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			doubts := 0
			c, store := faulty(t, &holdfast.Config{Hooks: onEvent(holdfast.EventInDoubt, func(e holdfast.Event) {
				doubts++
				wantErr(t, e.Err, holdfast.ErrUnavailable)
				if e.Left <= 0 || e.Left >= 20*time.Second {
					t.Errorf("in doubt with %v left", e.Left)
				}
			})})
			lock := acquire(t, c, "a", nil)
			store.Once(faultstore.Renew, fault)
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := lock.Err(); err != nil || doubts != 1 {
				t.Errorf("after one failed renewal: %v, %d doubts", err, doubts)
			}
		})
	}
}

// While renewals fail the lock is kept up to its deadline, which lies before the end of the TTL in
// the store, and is lost then.
func TestLostAtTheDeadline(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"refused": faultstore.Refuse, "hung": faultstore.Hang} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			var reason error
			lost := func(e holdfast.Event) { reason = e.Err }
			c, store := faulty(t, &holdfast.Config{Hooks: onEvent(holdfast.EventLost, lost)})
			store.Set(faultstore.Renew, fault)
			began := time.Now()
			lock := acquire(t, c, "a", nil)
			const valid = 30*time.Second - 300*ms - 2*ms
			if d := lock.Deadline().Sub(began); d != valid {
				t.Errorf("deadline after %v, want %v", d, valid)
			}
			noErr(t, within(t, valid, valid, func() error { <-lock.Context().Done(); return nil }))
			synctest.Wait()
			for _, err := range []error{context.Cause(lock.Context()), lock.Err(), lock.Release(), reason} {
				wantErr(t, err, holdfast.ErrLost, holdfast.ErrExpired)
			}
			if errors.Is(lock.Err(), holdfast.ErrReleased) {
				t.Error("a lost lock reports its release")
			}
		})
	}
}

// The deadline counts from before the request was sent, however long the answer takes.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, far(1500*ms))
		store.Set(faultstore.Renew, far(1500*ms))
		sent := time.Now()
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second})
		const valid = 10*time.Second - 102*ms
		if d := lock.Deadline().Sub(sent); d != valid {
			t.Errorf("deadline %v after the sending, want %v", d, valid)
		}
		sent = time.Now()
		noErr(t, lock.Extend(ctx, 10*time.Second))
		if d := lock.Deadline().Sub(sent); d != valid {
			t.Errorf("deadline %v after the extension, want %v", d, valid)
		}
		rec := lookup(t, c, "a")
		if left := time.Until(lock.Deadline()); left >= rec.Remaining {
			t.Errorf("we believe in %v, the store in %v", left, rec.Remaining)
		}
	})
}

func TestExtend(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true, TTL: 10 * time.Second})
		time.Sleep(9 * time.Second)
		noErr(t, lock.Extend(ctx, 20*time.Second))
		noErr(t, lock.Extend(ctx, time.Second)) // must not shorten
		before := lock.Deadline()
		store.Once(faultstore.Renew, faultstore.Hang)
		wantErr(t, lock.Extend(ctx, time.Hour), holdfast.ErrUnavailable)
		store.Once(faultstore.Renew, faultstore.Refuse)
		wantErr(t, lock.Extend(ctx, time.Hour), holdfast.ErrUnavailable)
		for _, d := range []time.Duration{0, -1, 1, driver.MaxTTL + 1} {
			wantErr(t, lock.Extend(ctx, d), holdfast.ErrInvalid)
		}
		over, cancel := context.WithTimeout(ctx, ms)
		defer cancel()
		<-over.Done()
		wantErr(t, lock.Extend(over, time.Minute), context.DeadlineExceeded)
		if !lock.Deadline().Equal(before) || lock.Err() != nil {
			t.Errorf("deadline moved from %v to %v, %v", before, lock.Deadline(), lock.Err())
		}
		time.Sleep(time.Until(before) - ms)
		noErr(t, lock.Err())
		time.Sleep(ms)
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
		time.Sleep(time.Second)
		free(t, c, "a")
		lock = acquire(t, c, "a", &holdfast.Options{NoRenew: true, TTL: 4 * time.Second})
		time.Sleep(time.Until(lock.Deadline()) - 400*ms)
		store.Once(faultstore.Renew, answersIn(230*ms)) // It has time for a slow answer, also near the end.
		noErr(t, lock.Extend(ctx, 4*time.Second))
		release(t, lock)
	})
}

// MaxHold ends the hold for its holder, and its Release frees the name, whatever the TTL.
func TestMaxHold(t *testing.T) {
	for _, o := range []holdfast.Options{{}, {TTL: 24 * time.Hour, Detached: true}} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, _ := faulty(t, nil)
			o.MaxHold = time.Minute
			lock := acquire(t, c, "a", &o)
			noErr(t, within(t, time.Minute, time.Minute, func() error { <-lock.Context().Done(); return nil }))
			wantErr(t, context.Cause(lock.Context()), holdfast.ErrLost, holdfast.ErrMaxHold)
			lookup(t, c, "a") // It is not free before the holder has let go or the TTL has passed.
			wantErr(t, lock.Release(), holdfast.ErrMaxHold)
			synctest.Wait()
			free(t, c, "a")
		})
	}
}

// Locks of a TTL too short for the line they are renewed over do not cost one of a longer TTL,
// whose renewals are always due together with some of theirs.
func TestShortTTLsDoNotCostLongOnes(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Renew, answersIn(120*ms))
		long := acquire(t, c, "long", &holdfast.Options{TTL: 30 * time.Second})
		first := acquire(t, c, "short", &holdfast.Options{TTL: 400 * ms})
		for i := range 8000 { // forty seconds
			acquire(t, c, fmt.Sprint("short", i), &holdfast.Options{TTL: 400 * ms})
			time.Sleep(5 * ms)
		}
		noErr(t, long.Err())
		wantErr(t, first.Err(), holdfast.ErrExpired) // the line is as bad as it is meant to be
	})
}

// A renewal that the store applies after the lock was lost does not bring it back to life.
func TestNoResurrection(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{RequestTimeout: time.Minute})
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second, NoRenew: true})
		store.Once(faultstore.Renew, func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(9 * time.Second)
			apply()
			time.Sleep(5 * time.Second)
			return nil
		})
		wantErr(t, lock.Extend(ctx, time.Hour), holdfast.ErrLost)
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
	})
}

// During a suspend the monotonic clock stands still and the boot clock goes on. The lock must be
// found lost at the first look after it.
func TestSuspendCountsAgainstTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		suspend := suspendable(t)
		c, store := faulty(t, nil)
		re := &holdfast.Options{Reentrant: true}
		lock := acquire(t, c, "a", re)
		ended := lock.Context().Done()
		time.Sleep(5 * time.Second)
		noErr(t, lock.Err())
		suspend(time.Hour)
		// Before anybody has noticed the end, what the store says counts.
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		wantErr(t, failure(c.TryAcquire(ctx, "a", re)), holdfast.ErrHeld)
		if n := store.Calls(faultstore.Acquire); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
		<-ended
		lock = acquire(t, c, "b", nil)
		if left := time.Until(lock.Deadline()); left != 29698*ms || lock.Err() != nil {
			t.Errorf("%v to the deadline after the suspend, %v", left, lock.Err())
		}
		// Without a look, the context ends within a second of the resume.
		ended = lock.Context().Done()
		suspend(time.Hour)
		noErr(t, within(t, 0, time.Second, func() error { <-ended; return nil }))
		// A suspend of which nobody has noticed is in the way of nobody.
		suspend(time.Hour)
		lock, err := c.TryAcquire(ctx, "c", nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lock.Deadline()); left > 29698*ms || lock.Err() != nil {
			t.Errorf("acquired after a suspend: %v to the deadline, %v", left, lock.Err())
		}
		// Nor does it delay the renewal of a lock with a short TTL.
		suspend(time.Hour)
		lock = acquire(t, c, "d", &holdfast.Options{TTL: 300 * ms})
		time.Sleep(700 * ms)
		noErr(t, lock.Err())
	})
}

// A grant by a notice has the rest of the place at first: one renewal that fails in that time is
// not a loss, however long the TTL.
func TestRenewalAfterAGrantByNotice(t *testing.T) {
	for what, fault := range map[string]faultstore.Fault{"refused": faultstore.Refuse, "hung": faultstore.Hang} {
		for _, ttl := range []time.Duration{30 * time.Second, 2 * time.Minute, time.Hour} {
			virtualRun(t, fmt.Sprint(what, " ", ttl), func(t *testing.T, ctx context.Context) {
				b, net := faulty(t, &holdfast.Config{RequestTimeout: 10 * time.Second})
				first := acquire(t, open(t, net.Store, nil), "n", nil)
				got := startWaiters(t, b, "n", &holdfast.Options{TTL: ttl}, 1)
				release(t, first)
				lock := <-got
				net.Once(faultstore.Renew, fault)
				time.Sleep(10 * time.Second)
				noErr(t, lock.Err())
			})
		}
	}
}

// Calls of Extend that fail, or for less than the TTL, leave the automatic renewal where it is,
// also if they overlap.
func TestExtendsAndAutomaticRenewal(t *testing.T) {
	for answer, d := range map[time.Duration]time.Duration{5 * ms: time.Minute, 80 * ms: 100 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, net := faulty(t, nil)
			lock := acquire(t, c, "n", &holdfast.Options{TTL: 10 * time.Second})
			net.Set(faultstore.Renew, far(answer))
			for i := range 2 {
				go func() {
					time.Sleep(time.Duration(i) * answer / 2)
					for lock.Err() == nil {
						limited, cancel := context.WithTimeout(ctx, d)
						if d > time.Second {
							limited, cancel = context.WithTimeout(ctx, answer-ms)
						}
						_ = lock.Extend(limited, d)
						cancel()
					}
				}()
			}
			for range 40 {
				time.Sleep(500 * ms)
				if left := time.Until(lock.Deadline()); left < 6*time.Second {
					t.Fatalf("%v are left of 10s, the lock is renewed too late", left)
				}
			}
			release(t, lock)
		})
	}
}
