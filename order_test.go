package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// The goroutines of a Client, and Clients, get a lock in the order in which they have asked for it.
func TestOrderOfClients(t *testing.T) {
	const waiters = 30
	for _, clients := range []int{1, waiters} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			first := acquire(t, open(t, store, nil), "a", nil)
			order := make(chan int, waiters)
			var tokens []int64
			var c *holdfast.Client
			var group sync.WaitGroup
			for i := range waiters {
				if i < clients {
					c = open(t, store, nil)
				}
				c := c
				group.Go(func() {
					lock := acquire(t, c, "a", nil)
					order <- i
					tokens = append(tokens, lock.Token())
					time.Sleep(7 * ms)
					release(t, lock)
				})
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			release(t, first)
			noErr(t, within(t, waiters*7*ms, waiters*7*ms, func() error { group.Wait(); return nil }))
			for want := range waiters {
				if got := <-order; got != want {
					t.Errorf("%d Clients: caller %d is served in the place of caller %d", clients, got, want)
				}
			}
			if !slices.IsSorted(tokens) {
				t.Errorf("%d Clients: the tokens do not rise: %v", clients, tokens)
			}
		})
	}
}

// A try does not overtake a client that waits, also in the moment of the release.
func TestTryDoesNotOvertake(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b, c := open(t, store, nil), open(t, store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		waited := startWaiters(t, b, "a", nil, 1)
		release(t, first)
		wantErr(t, failure(c.TryAcquire(ctx, "a", nil)), holdfast.ErrHeld)
		release(t, <-waited)
		release(t, acquire(t, c, "a", nil))
	})
}

// The store grants the lock, or makes a place, and the reply is lost. Acquire reaches the store
// once for an owner, and a renewal shows what became of it. No caller is locked out by its own
// entry.
func TestLostReplyOfAcquire(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"error": faultstore.LoseReply, "hang": applyAndHang} {
		for _, held := range []bool{false, true} {
			for _, try := range []bool{false, true} {
				virtualRun(t, fmt.Sprint(name, ", held ", held, ", try ", try), func(t *testing.T, ctx context.Context) {
					spy := spyOn(memstore.New())
					store := faultstore.Wrap(spy)
					c := open(t, store, nil)
					if held {
						first := acquire(t, open(t, spy.Notifier, nil), "a", nil)
						time.AfterFunc(time.Second, func() { release(t, first) })
					}
					store.Once(faultstore.Acquire, fault)
					call := c.Acquire
					if try {
						call = c.TryAcquire
					}
					var lock *holdfast.Lock
					err := within(t, 0, 4*time.Second, func() (err error) { lock, err = call(ctx, "a", nil); return err })
					switch {
					case err == nil:
						if rec := lookup(t, c, "a"); rec.Token != lock.Token() {
							t.Errorf("%+v, want token %d", rec, lock.Token())
						}
						release(t, lock)
						free(t, c, "a")
					case !held || !try || !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrUnavailable):
						t.Error(err)
					}
					owners := map[string]bool{}
					for _, req := range spy.acquired {
						owners[req.Owner] = true
					}
					if len(owners) != len(spy.acquired) {
						t.Errorf("an owner was sent twice: %v", spy.acquired)
					}
					time.Sleep(holdfast.DefaultTTL)
					free(t, c, "a")
				})
			}
		}
	}
}

// A hold that is broken while its grant is on the way is not taken again for the same owner, which
// would make the late grant believable. The owner is released.
func TestBreakWhileTheReplyIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		spy := spyOn(memstore.New())
		store := faultstore.Wrap(spy)
		c := open(t, store, nil)
		store.Once(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
			apply()
			breakLock(t, spy.Notifier, "a")
			return faultstore.ErrReplyLost
		})
		release(t, acquire(t, c, "a", nil))
		synctest.Wait()
		if len(spy.acquired) != 2 || spy.acquired[0].Owner == spy.acquired[1].Owner {
			t.Errorf("the requests %v, want two of two owners", spy.acquired)
		}
		if !slices.Contains(spy.released, spy.acquired[0].Owner) {
			t.Error("the first owner, whose request may still arrive, was not released")
		}
	})
}

// A place becomes a hold by a notice with its own token within its time, and by no other. One that
// was renewed without an answer keeps its turn.
func TestNoticesThatGrantNothing(t *testing.T) {
	for name, poke := range map[string]func(spy *spyStore, store *faultstore.Store){
		"another token": func(spy *spyStore, _ *faultstore.Store) { spy.send("a", spy.owner, spy.token+1) },
		"after the end of the place": func(spy *spyStore, store *faultstore.Store) {
			store.Set(faultstore.Renew, faultstore.LoseReply)
			time.Sleep(6 * time.Second)
			spy.send("a", spy.owner, spy.token)
			store.Set(faultstore.Renew, nil)
		},
	} {
		virtualRun(t, name, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			spy := spyOn(store)
			first := acquire(t, open(t, store.Store, nil), "a", nil)
			got := startWaiters(t, open(t, spy, nil), "a", nil, 1)
			behind := startWaiters(t, open(t, store.Store, nil), "a", nil, 1)
			poke(spy, store)
			waits(t, got)
			release(t, first)
			waits(t, behind)
			release(t, <-got)
			release(t, <-behind)
		})
	}
}

// The deadline of a lock that came by a notice counts from the request that confirms the most, in
// each phase of the renewal of its place. It is extended to the full TTL at once, however little is
// left of the place.
func TestDeadlineOfAGrant(t *testing.T) {
	type phase struct{ refused, released time.Duration } // from when renewals are refused, and the grant
	var phases []phase
	for at := 100 * ms; at < 6*time.Second; at += 300 * ms {
		phases = append(phases, phase{at, at + ms})
	}
	for left := 3 * ms; left < 300*ms; left += 9 * ms {
		phases = append(phases, phase{0, driver.Validity(5*time.Second) - left})
	}
	for _, phase := range phases {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			var confirmed time.Time // when the last request was sent
			note := func(_ context.Context, _ faultstore.Op, apply func()) error {
				confirmed = time.Now()
				apply()
				return nil
			}
			store.Set(faultstore.Acquire, note)
			store.Set(faultstore.Renew, note)
			first := acquire(t, open(t, store.Store, nil), "a", nil)
			time.AfterFunc(phase.refused, func() { store.Set(faultstore.Renew, faultstore.Refuse) })
			time.AfterFunc(phase.released, func() { release(t, first) })
			lock := acquire(t, open(t, store, nil), "a", nil)
			if end := confirmed.Add(driver.Validity(5 * time.Second)); !lock.Deadline().Equal(end) {
				t.Errorf("%v: the deadline is in %v, want %v", phase, time.Until(lock.Deadline()), time.Until(end))
			}
			store.Set(faultstore.Renew, nil)
			time.Sleep(2 * time.Second)
			if left := time.Until(lock.Deadline()); left < 25*time.Second {
				t.Errorf("%v: %v are left after the first renewal", phase, left)
			}
			release(t, lock)
		})
	}
}

// A lock that this Client does not renew to the end, or that another process may get by a ticket,
// has its full TTL when Acquire returns, also if it came by a notice, or if an earlier attempt was
// granted too late.
func TestFullTTLOfAGrant(t *testing.T) {
	for name, o := range map[string]*holdfast.Options{
		"NoRenew":  {NoRenew: true, TTL: time.Hour},
		"Detached": {Detached: true, TTL: time.Hour},
		"MaxHold":  {MaxHold: time.Hour, TTL: time.Hour},
	} {
		for _, late := range []bool{false, true} {
			virtualRun(t, fmt.Sprint(name, " ", late), func(t *testing.T, ctx context.Context) {
				store := faultstore.Wrap(memstore.New())
				other := open(t, store.Store, nil)
				c := open(t, store, &holdfast.Config{RequestTimeout: 2 * time.Hour})
				if late {
					store.Once(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
						apply()
						time.Sleep(time.Hour - 200*ms) // after its end, just before the TTL is over
						time.AfterFunc(time.Second, func() { release(t, acquire(t, other, "a", nil)) })
						return nil
					})
				} else {
					first := acquire(t, other, "a", nil)
					time.AfterFunc(4*time.Second, func() { release(t, first) })
				}
				began := time.Now()
				lock := acquire(t, c, "a", o)
				if took := time.Since(began); !late && took != 4*time.Second {
					t.Errorf("acquired after %v, want at the release", took)
				}
				if left := time.Until(lock.Deadline()); left < 59*time.Minute {
					t.Errorf("%v are left of an hour", left)
				}
				if rec := lookup(t, c, "a"); rec.Remaining != time.Hour {
					t.Errorf("the store has it for %v", rec.Remaining)
				}
				release(t, lock)
			})
		}
	}
}

// A waiter that gives up leaves the queue at once, and one that is granted the lock in this moment
// gives it back.
func TestWaiterThatGivesUp(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		a, b, c := open(t, store.Store, nil), open(t, store, nil), open(t, store.Store, nil)
		first := acquire(t, a, "a", nil)
		limited, cancel := context.WithCancel(ctx)
		given := later(func() error { return failure(b.Acquire(limited, "a", nil)) })
		got := startWaiters(t, c, "a", nil, 1)
		// The notice is on its way when b gives up.
		store.Once(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
			go func() { cancel(); time.Sleep(ms); apply() }()
			return nil
		})
		var lock *holdfast.Lock
		noErr(t, within(t, 0, 0, func() error { release(t, first); lock = <-got; return nil }))
		wantErr(t, <-given, context.Canceled)
		time.Sleep(time.Second)
		noErr(t, lock.Err()) // The late notice has not ended it.
		release(t, lock)
	})
}

// A notice of a grant that was found before comes after the lock has been handed over. It does not
// end the hold, which another process has by then.
func TestLateNoticeOfALockHandedOver(t *testing.T) {
	for _, waits := range []bool{false, true} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			a, b := open(t, store.Store, nil), open(t, store, nil)
			first := acquire(t, a, "a", nil)
			got := startWaiters(t, b, "a", &holdfast.Options{Detached: true}, 1)
			store.Once(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
				time.AfterFunc(4*time.Second, apply)
				return nil
			})
			release(t, first) // b finds by the renewal of its place that it has the lock.
			adopted := adopt(t, a, handOver(t, <-got), nil)
			if waits { // b waits for the name when the notice comes.
				go b.Acquire(ctx, "a", &holdfast.Options{Wait: 30 * time.Second})
			}
			time.Sleep(5 * time.Second)
			noErr(t, adopted.Extend(ctx, time.Minute))
			release(t, adopted)
		})
	}
}

// Waiters that have died together delay the next one by the time of one place.
func TestDeadWaiters(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		first := acquire(t, open(t, store, nil), "a", nil)
		for i := range 10 {
			req := driver.Request{Name: "a", Owner: fmt.Sprint("dead ", i), Holder: "dead", TTL: time.Hour, Place: 5 * time.Second}
			if res, err := store.Acquire(ctx, req); err != nil || !res.Waiting {
				t.Fatal(res, err)
			}
		}
		time.AfterFunc(ms, func() { release(t, first) })
		c := open(t, store, nil)
		noErr(t, within(t, 0, 5*time.Second+5*time.Second/3, func() error { return failure(c.Acquire(ctx, "a", nil)) }))
	})
}

// A place that the store has lost is followed by a new one, and so is a grant that it does not
// confirm.
func TestStoreThatForgets(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		spy := spyOn(store)
		first := acquire(t, open(t, store, nil), "a", nil)
		got := startWaiters(t, open(t, spy, nil), "a", nil, 1)
		if _, err := store.Release(ctx, driver.ReleaseRequest{Name: "a", Owner: spy.owner}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if rec := lookup(t, open(t, store, nil), "a"); rec.Waiting != 1 || len(spy.acquired) != 2 {
			t.Errorf("%+v after %d requests, want a new place", rec, len(spy.acquired))
		}
		release(t, first)
		release(t, <-got)
		store.Bend(forgets)
		first = acquire(t, open(t, store, nil), "b", nil)
		got = startWaiters(t, open(t, store, nil), "b", &holdfast.Options{Detached: true}, 1)
		release(t, first)
		release(t, <-got)
	})
}

// A store that may have missed notices has waiters look: the one with the owner, all of the name,
// all. Before the answer to its Acquire, a notice is kept until then.
func TestNoticeToLook(t *testing.T) {
	for notice, answer := range map[string]time.Duration{"owner": 0, "owner before the answer": time.Second, "name": 0, "all": 0} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			spy := spyOn(memstore.New())
			store := faultstore.Wrap(spy)
			first := acquire(t, open(t, spy.Notifier, nil), "a", nil)
			store.Once(faultstore.Acquire, answersLate(answer))
			got := startWaiters(t, open(t, store, nil), "a", nil, 1)
			store.Set(faultstore.Notice, loseNotice)
			release(t, first)
			waits(t, got)
			store.Set(faultstore.Notice, nil)
			switch notice {
			case "name":
				spy.send("a", "", 0)
			case "all":
				spy.send("", "", 0)
			default:
				spy.send("a", spy.owner, 0)
			}
			noErr(t, within(t, answer, answer, func() error { return (<-got).Release() }))
		})
	}
}

// Each shared or limited caller of a Client has an entry of its own; of the others the first has
// one.
func TestEntriesOfAClient(t *testing.T) {
	for want, o := range map[int]*holdfast.Options{5: {Limit: 2}, 4: shared, 1: nil} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			other, c := open(t, store, nil), open(t, store, nil)
			first := acquire(t, other, "a", nil)
			limited, cancel := context.WithCancel(ctx)
			for range max(want, 4) {
				go c.Acquire(limited, "a", o)
			}
			synctest.Wait()
			if rec := lookup(t, other, "a"); rec.Waiting != want {
				t.Errorf("%d places, want %d", rec.Waiting, want)
			}
			cancel()
			synctest.Wait()
			if rec := lookup(t, other, "a"); rec.Waiting != 0 {
				t.Errorf("%d places are left", rec.Waiting)
			}
			release(t, first)
		})
	}
}

// A notice that comes while an Acquire is refused leads to another one at once.
func TestNoticeBeforeTheRefusal(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New()).Unfair()
		first := acquire(t, open(t, store, nil), "a", nil)
		c := open(t, store, &holdfast.Config{Backoff: holdfast.Backoff{Min: 10 * time.Second}})
		store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			apply()
			release(t, first)
			return nil
		})
		noErr(t, within(t, 0, 50*ms, func() error { return failure(c.Acquire(ctx, "a", nil)) }))
	})
}
