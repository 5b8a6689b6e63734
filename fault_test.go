package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// The classic: the store grants the lock and the reply is lost. The same
// attempt, sent again, is recognised; nobody is locked out by himself.
func TestLostReplyOfAcquire(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"error": faultstore.LoseReply, "hang": applyAndHang} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				for _, acquire := range []func(context.Context, string, *holdfast.Options) (*holdfast.Lock, error){c.Acquire, c.TryAcquire} {
					store.Once(faultstore.Acquire, fault)
					began := time.Now()
					lock, err := acquire(ctx, "a", nil)
					if err != nil {
						t.Fatalf("after a lost reply: %v", err)
					}
					if took := time.Since(began); took > 4*time.Second {
						t.Errorf("took %v", took)
					}
					if rec := lookup(t, c, "a"); rec.Token != lock.Token() {
						t.Errorf("%+v, want token %d", rec, lock.Token())
					}
					release(t, lock)
					free(t, c, "a")
				}
			})
		})
	}
}

// applyAndHang applies the request and never answers.
func applyAndHang(ctx context.Context, op faultstore.Op, apply func()) error {
	apply()
	return faultstore.Hang(ctx, op, apply)
}

// A canceled Acquire returns when the request in flight is answered, at the deadline of its context
// or after RequestTimeout at the latest, and what the store granted all the same is released.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	cases := map[string]struct {
		fault   faultstore.Fault
		returns time.Duration // after the call, if it is canceled
	}{
		"granted after the cancel": {func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(time.Second)
			apply()
			return nil
		}, time.Second},
		"granted before it": {func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			time.Sleep(time.Second)
			return nil
		}, time.Second},
		"granted, reply lost":       {applyAndHang, 3 * time.Second},
		"granted, every reply lost": {faultstore.LoseReply, 500 * ms},
	}
	leavesNothing := func(t *testing.T, name string, fault faultstore.Fault, returns time.Duration,
		limit func(context.Context) (context.Context, context.CancelFunc), cause error,
	) {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			if name == "granted, every reply lost" {
				store.Set(faultstore.Acquire, fault)
				store.Set(faultstore.Renew, fault)
			} else {
				store.Once(faultstore.Acquire, fault)
			}
			limited, cancel := limit(ctx)
			defer cancel()
			began := time.Now()
			_, err := c.Acquire(limited, "a", nil)
			wantErr(t, err, cause)
			if took := time.Since(began); took != returns {
				t.Errorf("returned %v after the call, want %v", took, returns)
			}
			time.Sleep(25 * time.Second)
			free(t, c, "a")
		})
	}
	for name, test := range cases {
		t.Run(name+"/canceled", func(t *testing.T) {
			leavesNothing(t, name, test.fault, test.returns, func(ctx context.Context) (context.Context, context.CancelFunc) {
				canceled, cancel := context.WithCancel(ctx)
				time.AfterFunc(500*ms, cancel)
				return canceled, cancel
			}, context.Canceled)
		})
		t.Run(name+"/deadline", func(t *testing.T) {
			returns := test.returns
			if returns == 3*time.Second { // the others hold up the caller's goroutine
				returns = 500 * ms
			}
			leavesNothing(t, name, test.fault, returns, func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 500*ms)
			}, context.DeadlineExceeded)
		})
	}
}

// A wait between two requests ends at once with its context.
func TestCanceledPauseEndsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Silent()
		acquire(t, open(t, store, nil), "a", nil)
		store.Set(faultstore.Acquire, far(10*ms))
		limited, cancel := context.WithTimeout(ctx, 20*time.Second+7*ms)
		defer cancel()
		began := time.Now()
		_, err := open(t, store, nil).Acquire(limited, "a", nil)
		wantErr(t, err, context.DeadlineExceeded, holdfast.ErrHeld)
		if took := time.Since(began) - 20*time.Second - 7*ms; took < 0 || took > 10*ms {
			t.Errorf("returned %v after the end of the context, want at most one request later", took)
		}
	})
}

// A wait that is cut short while the store does not answer says so, and does not
// forget what the store said before.
func TestWaitCutShortInAnOutageSaysWhy(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		_, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second})
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, err, holdfast.ErrUnavailable)

		store.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
			store.Set(faultstore.Acquire, faultstore.Hang)
			return errors.New("the disk is on fire")
		})
		_, err = c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second})
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "the disk is on fire") {
			t.Errorf("the error %q does not say what the store said", err)
		}
	})
}

func TestStoreThatRefusesIsReportedAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Refuse)
		began := time.Now()
		_, err := c.Acquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrUnavailable, faultstore.ErrRefused)
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestWaiterRidesOutAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		first := acquire(t, other, "a", nil)
		got := make(chan error, 1)
		go func() {
			_, err := c.Acquire(ctx, "a", nil)
			got <- err
		}()
		synctest.Wait()
		store.Set(faultstore.Acquire, faultstore.Refuse)
		time.Sleep(5 * time.Second)
		release(t, first)
		time.Sleep(4 * time.Second)
		store.Set(faultstore.Acquire, nil)
		if err := <-got; err != nil {
			t.Errorf("after an outage of 9s: %v", err)
		}
	})
}

// A request that was not sent in time, as behind one that hangs, is no refusal: a caller that the
// store has never answered goes on trying.
func TestUnsentRequestIsNoRefusal(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, _ func()) error {
			<-ctx.Done()
			return driver.NotApplied(ctx.Err())
		})
		time.AfterFunc(8*time.Second, func() { store.Set(faultstore.Acquire, nil) })
		release(t, acquire(t, c, "a", nil))
	})
}

// A store that hangs does not hold up anybody longer than the bounds say.
func TestHungStoreIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break} {
			store.Set(op, faultstore.Hang)
		}
		bound := func(what string, limit time.Duration, call func() error) {
			t.Helper()
			began := time.Now()
			wantErr(t, call(), holdfast.ErrUnavailable)
			if took := time.Since(began); took > limit {
				t.Errorf("%s took %v, want at most %v", what, took, limit)
			}
		}
		bound("Extend", 3*time.Second, func() error { return lock.Extend(ctx, time.Minute) })
		bound("Lookup", 3*time.Second, func() error { _, err := c.Lookup(ctx, "a"); return err })
		bound("Break", 3*time.Second, func() error { _, err := c.Break(ctx, "a", 0); return err })
		bound("TryAcquire", 7*time.Second, func() error { _, err := c.TryAcquire(ctx, "b", nil); return err })
		bound("Release", 10*time.Second, lock.Release)
	})
}

// A release of unknown outcome is tried again until the store has understood.
func TestReleaseIsTriedAgain(t *testing.T) {
	cases := map[string]faultstore.Fault{
		"refused":    faultstore.Refuse,
		"reply lost": faultstore.LoseReply,
		"hung":       faultstore.Hang,
	}
	for name, fault := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				lock := acquire(t, c, "a", nil)
				store.Once(faultstore.Release, fault)
				if err := lock.Release(); name != "hung" && err != nil {
					t.Errorf("Release: %v", err)
				}
				time.Sleep(time.Second)
				free(t, c, "a")
			})
		})
	}
}

func TestUnconfirmedReleaseGoesOnInTheBackground(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, lock.Release(), holdfast.ErrUnavailable)
		wantErr(t, lock.Err(), holdfast.ErrReleased)
		time.Sleep(5 * time.Second)
		store.Set(faultstore.Release, nil)
		time.Sleep(time.Second)
		free(t, c, "a") // long before its TTL
	})
}

// When Release has returned nothing is written any more: it waits for a renewal
// that is under way.
func TestReleaseWaitsForTheRenewalUnderWay(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		var mu sync.Mutex
		var order []string
		note := func(what string) { mu.Lock(); order = append(order, what); mu.Unlock() }
		store.Once(faultstore.Renew, func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(2 * time.Second)
			apply()
			note("renewed")
			return nil
		})
		time.Sleep(10*time.Second + ms) // the renewal is under way
		release(t, lock)
		note("released")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(order, ", "); got != "renewed, released" {
			t.Errorf("order: %s", got)
		}
		free(t, c, "a")
	})
}

// A renewal that the store applies after the lock was lost does not bring it
// back to life.
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

// A request that arrives after its caller has given up, and after a first release has found nothing,
// does not keep the name for its TTL: the release is sent again.
func TestRequestThatArrivesAfterItsRelease(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		limited, cancel := context.WithCancel(ctx)
		store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			cancel()
			time.AfterFunc(1500*ms, apply)
			return errors.New("connection reset")
		})
		if _, err := c.Acquire(limited, "a", nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(1600 * ms)
		if rec := lookup(t, c, "a"); rec.Holder == "" {
			t.Error("the request has not arrived")
		}
		time.Sleep(2 * time.Second)
		free(t, c, "a")
	})
}
