package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// outcomes counts the errors of many calls by what they match.
type outcomes struct {
	mu                             sync.Mutex
	held, unavailable, none, other int
	odd                            error
}

func (o *outcomes) add(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.none++
	case errors.Is(err, holdfast.ErrHeld):
		o.held++
	case errors.Is(err, holdfast.ErrUnavailable):
		o.unavailable++
	default:
		o.other++
		o.odd = err
	}
}

// During an outage no verb reports that a name is held which nobody holds: not the
// first try, which meets with the silence itself, nor any later one, which finds
// that what the first may have been granted is still being given back.
func TestOutageIsNeverHeld(t *testing.T) {
	faults := map[string]faultstore.Fault{
		"hung":          faultstore.Hang,
		"reply lost":    faultstore.LoseReply,
		"granted, hung": applyAndHang,
		"refused":       faultstore.Refuse,
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
					store.Set(op, fault)
				}
				// A notice would show a grant whose reply was lost.
				store.Set(faultstore.Notice, func(context.Context, faultstore.Op, func()) error { return nil })
				var tries, waits outcomes
				var group sync.WaitGroup
				for i := range 140 {
					group.Go(func() {
						began := time.Now()
						_, err := c.TryAcquire(ctx, "a", nil)
						tries.add(err)
						if took := time.Since(began); took > 7*time.Second {
							t.Errorf("a try took %v", took)
						}
					})
					if i%10 == 0 {
						group.Go(func() {
							_, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: 2 * time.Second})
							waits.add(err)
						})
					}
					time.Sleep(100 * ms)
				}
				group.Wait()
				if tries.held+tries.none+tries.other > 0 || waits.held+waits.none+waits.other > 0 {
					t.Errorf("of 140 tries %d were told that it is held, %d that the store is unavailable (%d, %d %v); of 14 waits %d, %d (%d, %d %v)",
						tries.held, tries.unavailable, tries.none, tries.other, tries.odd,
						waits.held, waits.unavailable, waits.none, waits.other, waits.odd)
				}
				for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
					store.Set(op, nil)
				}
				time.Sleep(time.Minute)
				lock, err := c.TryAcquire(ctx, "a", nil)
				if err != nil {
					t.Fatalf("a minute after the outage: %v", err)
				}
				release(t, lock)
			})
		})
	}
}

// A release that the store does not answer leaves it unknown whether the name is
// held, until it answers.
func TestUnansweredReleaseIsNotHeld(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
			store.Set(op, faultstore.Hang)
		}
		var group sync.WaitGroup
		group.Go(func() { wantErr(t, lock.Release(), holdfast.ErrUnavailable) })
		synctest.Wait()
		var tries outcomes
		for range 100 {
			group.Go(func() {
				_, err := c.TryAcquire(ctx, "a", nil)
				tries.add(err)
			})
			time.Sleep(100 * ms)
		}
		group.Wait()
		if tries.unavailable != 100 {
			t.Errorf("of 100 tries %d were told that it is held, %d that the store is unavailable", tries.held, tries.unavailable)
		}
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
		waited := make(chan *holdfast.Lock, 1)
		go func() { waited <- acquire(t, c, "a", nil) }()
		synctest.Wait()

		for range 10 {
			time.Sleep(time.Second)
			var held *holdfast.HeldError
			if _, err := c.TryAcquire(ctx, "a", nil); !errors.As(err, &held) || held.Record.Holder != "other" {
				t.Errorf("while another holds it: %v", err)
			}
		}
		time.Sleep(time.Second)
		store.Set(faultstore.Acquire, faultstore.Refuse)
		_, err := c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrUnavailable)
		store.Set(faultstore.Acquire, nil)
		release(t, other)
		reentrant := &holdfast.Options{Reentrant: true}
		lock, err := c.TryAcquire(ctx, "a", reentrant)
		if err != nil {
			t.Fatalf("a try of a free name: %v", err)
		}
		release(t, acquire(t, c, "a", reentrant))
		var held *holdfast.HeldError
		if _, err := c.TryAcquire(ctx, "a", nil); !errors.As(err, &held) || !held.Self {
			t.Errorf("a try of what this Client has: %v", err)
		}
		if n := len(c.Locks()); n != 1 {
			t.Errorf("%d locks, want 1", n)
		}
		release(t, lock)
		release(t, <-waited)
	})
}

// A try beside a request that hangs ends with its own context.
func TestTryBesideAHungRequestEnds(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		var group sync.WaitGroup
		group.Go(func() { _, _ = c.TryAcquire(ctx, "a", nil) })
		synctest.Wait()
		limited, cancel := context.WithTimeout(ctx, 50*ms)
		defer cancel()
		began := time.Now()
		_, err := c.TryAcquire(limited, "a", nil)
		wantErr(t, err, context.DeadlineExceeded, holdfast.ErrUnavailable)
		if took := time.Since(began); took != 50*ms {
			t.Errorf("took %v", took)
		}
		group.Wait()
	})
}

// An answer of the server that it can serve later is waited for as long as the
// caller is ready to wait, also if it is the first answer, and longer than an
// outage is borne; without a bound of the caller's own, for that long.
func TestRetryErrorIsWaitedOut(t *testing.T) {
	answers := map[string]time.Duration{"known": 15 * time.Second, "unknown": 0}
	for name, after := range answers {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				began := time.Now()
				serves := began.Add(15 * time.Second)
				later := func(_ context.Context, _ faultstore.Op, apply func()) error {
					if left := time.Until(serves); left > 0 {
						return &driver.RetryError{Err: errors.New("LOADING"), After: min(after, left)}
					}
					apply()
					return nil
				}
				store.Set(faultstore.Acquire, later)
				_, err := c.TryAcquire(ctx, "a", nil)
				wantErr(t, err, holdfast.ErrUnavailable)
				_, err = c.Acquire(ctx, "a", &holdfast.Options{Wait: 3 * time.Second})
				wantErr(t, err, holdfast.ErrUnavailable, context.DeadlineExceeded)
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("gave up after %v, not at the end of Wait", took)
				}
				lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Minute})
				if err != nil {
					t.Fatalf("with Wait 1m: %v", err)
				}
				if late := time.Since(serves); late > 300*ms {
					t.Errorf("acquired %v after the server serves again", late)
				}
				release(t, lock)

				began = time.Now()
				serves = began.Add(time.Hour)
				_, err = c.Acquire(ctx, "a", nil)
				wantErr(t, err, holdfast.ErrUnavailable)
				if took, want := time.Since(began), 10*time.Second+after; took < want || took > want+16*time.Second {
					t.Errorf("without a bound it gave up after %v", took)
				}
			})
		})
	}
}

// An acquisition that waits for a store to serve says so in the log, once.
func TestWaitForTheStoreIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var log strings.Builder
		c, store := faulty(t, &holdfast.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		store.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
			return &driver.RetryError{Err: errors.New("LOADING")}
		})
		_, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Minute})
		wantErr(t, err, holdfast.ErrUnavailable)
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "trying again") || !strings.Contains(text, "LOADING") {
			t.Errorf("the log: %q", text)
		}
	})
}

// A release goes on in the background for as long as the store may keep the hold:
// after an extension, after an adoption with a shorter TTL of a hold that was
// extended.
func TestBackgroundReleaseLastsAsLongAsTheHold(t *testing.T) {
	cases := map[string]func(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store) *holdfast.Lock{
		"extended": func(t *testing.T, ctx context.Context, c *holdfast.Client, _ *faultstore.Store) *holdfast.Lock {
			lock := acquire(t, c, "a", nil)
			if err := lock.Extend(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			return lock
		},
		"extended, reply lost": func(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store) *holdfast.Lock {
			lock := acquire(t, c, "a", nil)
			store.Once(faultstore.Renew, faultstore.LoseReply)
			wantErr(t, lock.Extend(ctx, time.Hour), holdfast.ErrUnavailable)
			return lock
		},
		"adopted": func(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store) *holdfast.Lock {
			first := acquire(t, open(t, store.Store, nil), "a", &holdfast.Options{Detached: true})
			if err := first.Extend(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			ticket, err := first.HandOver()
			if err != nil {
				t.Error(err)
			}
			lock, err := c.Adopt(ctx, ticket, &holdfast.Options{TTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		},
		"extended, reply lost, adopted": func(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store) *holdfast.Lock {
			first := acquire(t, open(t, store, nil), "a", &holdfast.Options{Detached: true})
			store.Once(faultstore.Renew, faultstore.LoseReply)
			wantErr(t, first.Extend(ctx, time.Hour), holdfast.ErrUnavailable)
			ticket, err := first.HandOver()
			if err != nil {
				t.Error(err)
			}
			lock, err := c.Adopt(ctx, ticket, &holdfast.Options{TTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return lock
		},
		"granted late": func(t *testing.T, ctx context.Context, c *holdfast.Client, store *faultstore.Store) *holdfast.Lock {
			store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				time.Sleep(25 * time.Second)
				apply()
				return nil
			})
			limited, cancel := context.WithTimeout(ctx, ms)
			defer cancel()
			_, err := c.Acquire(limited, "a", nil)
			wantErr(t, err, context.DeadlineExceeded)
			return nil
		},
	}
	for name, setUp := range cases {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				lock := setUp(t, ctx, c, store)
				store.Set(faultstore.Release, faultstore.Refuse)
				if lock != nil {
					wantErr(t, lock.Release(), holdfast.ErrUnavailable)
				}
				time.Sleep(50 * time.Second)
				store.Set(faultstore.Release, nil)
				time.Sleep(time.Second)
				free(t, c, "a")
			})
		})
	}
}

// On a store with a grain a background release lasts as long as the store may keep the hold.
func TestBackgroundReleaseLastsThroughTheGrain(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.NewCoarse(time.Minute))
		c := open(t, store, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second})
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, lock.Release(), holdfast.ErrUnavailable)
		time.Sleep(30 * time.Second)
		store.Set(faultstore.Release, nil)
		time.Sleep(10 * time.Second) // 20 s before the end of the hold
		free(t, c, "a")
	})
}

// Locks of a TTL too short for the line they are renewed over do not cost one of a
// longer TTL, whose renewals are always due together with some of theirs.
func TestShortTTLsDoNotCostLongOnes(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Renew, func(ctx context.Context, op faultstore.Op, apply func()) error {
			select {
			case <-time.After(120 * ms):
				apply()
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		long := acquire(t, c, "long", &holdfast.Options{TTL: 30 * time.Second})
		var first *holdfast.Lock
		for i := range 8000 { // forty seconds
			short := acquire(t, c, fmt.Sprint("short", i), &holdfast.Options{TTL: 400 * ms})
			if first == nil {
				first = short
			}
			time.Sleep(5 * ms)
		}
		if err := long.Err(); err != nil {
			t.Errorf("the lock of 30s: %v", err)
		}
		wantErr(t, first.Err(), holdfast.ErrExpired) // the line is as bad as it is meant to be
	})
}

// A hold whose deadline has passed is not held by this Client, also before anybody has
// noticed: what the store says counts.
func TestUnnoticedEndIsNotHeldByOneself(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		var suspended atomic.Int64
		began := time.Now()
		t.Cleanup(holdfast.SetBootClock(func() time.Duration {
			return time.Since(began) + time.Duration(suspended.Load())
		}))
		c, store := faulty(t, nil)
		acquire(t, c, "a", nil)
		suspended.Store(int64(time.Hour))
		_, err := c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld) // says the store
		if n := store.Calls(faultstore.Acquire); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// That this Client holds a lock is said to those that wait behind it as long as it can be true: a TTL
// after the last answer of the store nobody knows.
func TestHeldByOneselfIsNotBelievedForLong(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{TTL: 2 * time.Second, MaxOutage: time.Minute})
		lock := acquire(t, c, "a", nil)
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
			store.Set(op, faultstore.Hang)
		}
		go func() { _ = lock.Release() }()
		patient, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		go func() { _, _ = c.Acquire(patient, "a", nil) }() // the next head
		for at := range 20 {
			limited, cancel := context.WithTimeout(ctx, ms)
			_, err := c.Acquire(limited, "a", nil)
			cancel()
			if held := errors.Is(err, holdfast.ErrHeld); held != (at < 2) {
				t.Errorf("after %ds: %v", at, err)
			}
			time.Sleep(999 * ms)
		}
	})
}

// A try goes on if the store announces that it can answer within moments, as a quorum whose nodes
// were divided does, and not for longer than a request may take. Any other announcement is its error.
func TestTryOfADividedQuorum(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{20 * ms: 60 * ms, 0: 0, time.Second: 0} {
		for _, often := range []int{3, 1 << 30} {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, nil)
				left := often
				store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
					if left--; left < 0 {
						apply()
						return nil
					}
					return &driver.RetryError{Err: errors.New("divided"), After: after}
				})
				began := time.Now()
				lock, err := c.TryAcquire(ctx, "a", nil)
				if lock != nil {
					defer release(t, lock)
				}
				most := want + 20*ms
				if often > 3 && want > 0 {
					want, most = 3*time.Second, 3*time.Second+50*ms
				}
				if took := time.Since(began); took < want || took > most || (err == nil) != (want == 60*ms) {
					t.Errorf("after %v, %d times: %v after %v", after, often, err, took)
				}
			})
		}
	}
}
