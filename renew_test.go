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
	"github.com/holdfast-go/holdfast/memstore"
)

func TestRenewalHoldsForADay(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		time.Sleep(24 * time.Hour)
		if err := lock.Err(); err != nil {
			t.Errorf("after a day: %v", err)
		}
		synctest.Wait()
		n := store.Calls(faultstore.Renew)
		if n != 24*60*6 {
			t.Errorf("%d renewals in a day, want one every 10s", n)
		}
		release(t, lock)
		time.Sleep(time.Hour)
		if after := store.Calls(faultstore.Renew); after != n {
			t.Errorf("renewed after the release")
		}
	})
}

func TestManyLocksAreRenewedTogether(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		for i := range 500 {
			acquire(t, c, fmt.Sprint("lock ", i), nil)
			time.Sleep(ms)
		}
		time.Sleep(10 * time.Minute)
		// Acquired within half a second, they fall into two windows at most.
		if n := store.Calls(faultstore.Renew); n > 2*61 {
			t.Errorf("%d requests for 500 locks in ten minutes", n)
		}
	})
}

func TestOneFailedRenewalIsNoLoss(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"refused": faultstore.Refuse, "reply lost": faultstore.LoseReply, "hung": faultstore.Hang} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				doubts := 0
				c, store := faulty(t, &holdfast.Config{Hooks: holdfast.OnEvent(holdfast.EventInDoubt, func(e holdfast.Event) {
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
		})
	}
}

// While renewals fail the lock is kept up to its deadline, which lies before
// the end of the TTL in the store, and is lost then.
func TestLostAtTheDeadline(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"refused": faultstore.Refuse, "hung": faultstore.Hang} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				var reason error
				c, store := faulty(t, &holdfast.Config{Hooks: holdfast.OnEvent(holdfast.EventLost, func(e holdfast.Event) { reason = e.Err })})
				store.Set(faultstore.Renew, fault)
				began := time.Now()
				lock := acquire(t, c, "a", nil)
				const valid = 30*time.Second - 300*ms - 2*ms
				if d := lock.Deadline().Sub(began); d != valid {
					t.Errorf("deadline after %v, want %v", d, valid)
				}
				<-lock.Context().Done()
				if took := time.Since(began); took != valid {
					t.Errorf("context ended after %v, want %v", took, valid)
				}
				synctest.Wait()
				for _, err := range []error{context.Cause(lock.Context()), lock.Err(), lock.Release(), reason} {
					wantErr(t, err, holdfast.ErrLost, holdfast.ErrExpired)
				}
				if errors.Is(lock.Err(), holdfast.ErrReleased) {
					t.Error("a lost lock reports its release")
				}
			})
		})
	}
}

// The deadline counts from before the request was sent, however long the
// answer takes.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	slow := func(_ context.Context, _ faultstore.Op, apply func()) error {
		time.Sleep(700 * ms)
		apply()
		time.Sleep(800 * ms)
		return nil
	}
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, slow)
		sent := time.Now()
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second})
		const valid = 10*time.Second - 102*ms
		if d := lock.Deadline().Sub(sent); d != valid {
			t.Errorf("deadline %v after the sending, want %v", d, valid)
		}
		store.Set(faultstore.Renew, slow)
		sent = time.Now()
		if err := lock.Extend(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if d := lock.Deadline().Sub(sent); d != valid {
			t.Errorf("deadline %v after the extension, want %v", d, valid)
		}
		rec := lookup(t, c, "a")
		if left := time.Until(lock.Deadline()); left >= rec.Remaining {
			t.Errorf("we believe in %v, the store in %v", left, rec.Remaining)
		}
	})
}

// An answer that comes after the end of the TTL is no lock.
func TestAnswerThatComesTooLate(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			time.Sleep(990 * ms)
			return nil
		})
		lock := acquire(t, c, "a", &holdfast.Options{TTL: time.Second})
		if left := time.Until(lock.Deadline()); left != 988*ms {
			t.Errorf("%v left, want that of another request", left)
		}
		release(t, lock)
		free(t, c, "a")
	})
}

func TestLossIsNoticedByTheNextRenewal(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		store.Set(faultstore.Notice, func(context.Context, faultstore.Op, func()) error { return nil })
		victim, other := open(t, store, nil), open(t, store.Store, nil)
		lock := acquire(t, victim, "a", nil)
		time.Sleep(time.Second)
		if _, err := other.Break(ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, other, "a", nil)
		<-lock.Context().Done()
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrLost, holdfast.ErrTaken)
		wantErr(t, lock.Extend(ctx, time.Second), holdfast.ErrLost)
		wantErr(t, lock.Release(), holdfast.ErrLost)
		if err := next.Err(); err != nil {
			t.Errorf("the successor: %v", err)
		}
		if next.Token() <= lock.Token() {
			t.Errorf("token %d after %d", next.Token(), lock.Token())
		}
	})
}

func TestNoRenewAndExtend(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true, TTL: 10 * time.Second})
		time.Sleep(9 * time.Second)
		if err := lock.Extend(ctx, 20*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := lock.Extend(ctx, time.Second); err != nil { // must not shorten
			t.Fatal(err)
		}
		time.Sleep(19 * time.Second)
		if err := lock.Err(); err != nil {
			t.Errorf("within the extension: %v", err)
		}
		time.Sleep(time.Second)
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrExpired)
		if n := store.Calls(faultstore.Renew); n != 2 {
			t.Errorf("%d renewals, want the two extensions", n)
		}
		for _, d := range []time.Duration{0, -1, 1, driver.MaxTTL + 1} {
			wantErr(t, lock.Extend(ctx, d), holdfast.ErrInvalid)
		}
	})
}

func TestExtendOfUnknownOutcome(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{NoRenew: true})
		before := lock.Deadline()
		store.Once(faultstore.Renew, faultstore.LoseReply)
		wantErr(t, lock.Extend(ctx, time.Hour), holdfast.ErrUnavailable)
		if !lock.Deadline().Equal(before) || lock.Err() != nil {
			t.Errorf("deadline moved from %v to %v, %v", before, lock.Deadline(), lock.Err())
		}
	})
}

func TestMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, nil)
		began := time.Now()
		lock := acquire(t, c, "a", &holdfast.Options{MaxHold: time.Minute})
		<-lock.Context().Done()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("held for %v", took)
		}
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrLost, holdfast.ErrMaxHold)
		lookup(t, c, "a") // It is not free before the holder has let go or the TTL has passed.
		wantErr(t, lock.Release(), holdfast.ErrMaxHold)
		synctest.Wait()
		free(t, c, "a")
	})
}

// Renewals that hang leave time for others: a request has a quarter of the TTL, and
// the pauses after it a sixteenth at most, so that three are sent before the deadline.
func TestRenewalLeavesTimeForOthers(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Renew, faultstore.Hang)
		for range 300 { // The pauses are random.
			before := store.Calls(faultstore.Renew)
			lock := acquire(t, c, "a", &holdfast.Options{TTL: 6 * time.Second})
			<-lock.Context().Done()
			if n := store.Calls(faultstore.Renew) - before; n < 3 {
				t.Errorf("%d renewals were tried before the lock was lost, want 3", n)
			}
			wantErr(t, lock.Release(), holdfast.ErrExpired)
		}
	})
}
