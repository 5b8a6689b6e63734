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

// Clients get a lock in the order in which they have asked for it.
func TestOrderOfClients(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		const clients = 30
		store := memstore.New()
		first := acquire(t, open(t, store, nil), "a", nil)
		order := make(chan int, clients)
		var group sync.WaitGroup
		var tokens []int64
		for i := range clients {
			c := open(t, store, nil)
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
		began := time.Now()
		release(t, first)
		group.Wait()
		for want := range clients {
			if got := <-order; got != want {
				t.Errorf("client %d is served in the place of client %d", got, want)
			}
		}
		if took := time.Since(began); took != clients*7*ms {
			t.Errorf("%d holds of 7ms took %v", clients, took)
		}
		if !slices.IsSorted(tokens) {
			t.Errorf("the tokens do not rise: %v", tokens)
		}
	})
}

// A try does not overtake a client that waits, also in the moment of the release.
func TestTryDoesNotOvertake(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b, c := open(t, store, nil), open(t, store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		waited := startWaiters(t, b, "a", 1)
		release(t, first)
		_, err := c.TryAcquire(ctx, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		release(t, <-waited)
		release(t, acquire(t, c, "a", nil))
	})
}

// A request whose reply is lost is sent again as a claim, and no second hold or place is made.
func TestLostReplyIsClaimed(t *testing.T) {
	for _, held := range []bool{false, true} {
		for name, call := range map[string]func(*holdfast.Client, context.Context) (*holdfast.Lock, error){
			"acquire": func(c *holdfast.Client, ctx context.Context) (*holdfast.Lock, error) {
				return c.Acquire(ctx, "a", nil)
			},
			"try": func(c *holdfast.Client, ctx context.Context) (*holdfast.Lock, error) {
				return c.TryAcquire(ctx, "a", nil)
			},
		} {
			t.Run(fmt.Sprint(name, " held ", held), func(t *testing.T) {
				virtual(t, func(t *testing.T, ctx context.Context) {
					log := &requestLog{Store: memstore.New()}
					store := faultstore.Wrap(log)
					c := open(t, store, nil)
					if held {
						first := acquire(t, open(t, log.Store, nil), "a", nil)
						time.AfterFunc(time.Second, func() { release(t, first) })
					}
					store.Once(faultstore.Acquire, faultstore.LoseReply)
					lock, err := call(c, ctx)
					if held && name == "try" {
						wantErr(t, err, holdfast.ErrHeld)
					} else if err != nil {
						t.Fatal(err)
					} else {
						release(t, lock)
					}
					made := map[string]int{}
					for _, req := range log.acquired() {
						if !req.Claim {
							made[req.Owner]++
						}
					}
					for owner, n := range made {
						if n > 1 {
							t.Errorf("owner %s was sent %d times without a claim", owner, n)
						}
					}
				})
			})
		}
	}
}

// A hold that is broken while its grant is on the way is not taken again for the same owner, which
// would make the late grant believable.
func TestBreakWhileTheReplyIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		log := &requestLog{Store: memstore.New()}
		store := faultstore.Wrap(log)
		c, other := open(t, store, nil), open(t, log.Store, nil)
		store.Once(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
			apply()
			if _, err := other.Break(ctx, "a"); err != nil {
				t.Error(err)
			}
			return faultstore.ErrReplyLost
		})
		release(t, acquire(t, c, "a", nil))
		requests := log.acquired()
		if n := len(requests); n != 3 || !requests[1].Claim || requests[2].Claim || requests[1].Owner == requests[2].Owner {
			t.Errorf("%d requests, want one, its claim, and one of another owner: %+v", n, requests)
		}
		synctest.Wait()
		if !slices.Contains(log.releasedOwners(), requests[0].Owner) {
			t.Error("the first owner, whose request may still arrive, was not released")
		}
	})
}

// A notice that is read after the end of what the store has confirmed is no lock.
func TestLateNotice(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		a, b := open(t, store.Store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		got := startWaiters(t, b, "a", 1)
		pause := make(chan struct{})
		hang := func(_ context.Context, _ faultstore.Op, apply func()) error { <-pause; apply(); return nil }
		store.Set(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
			go func() { <-pause; apply() }()
			return nil
		})
		store.Set(faultstore.Renew, hang)
		store.Set(faultstore.Acquire, hang)
		release(t, first) // b is granted the lock, and pauses.
		time.Sleep(6 * time.Second)
		taken := acquire(t, a, "a", nil) // The hold of b has expired.
		close(pause)
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a grant is believed after its end")
		default:
		}
		store.Set(faultstore.Renew, nil)
		store.Set(faultstore.Acquire, nil)
		store.Set(faultstore.Notice, nil)
		second := taken.Token()
		release(t, taken)
		lock := <-got
		if lock.Token() <= second {
			t.Errorf("token %d after %d", lock.Token(), second)
		}
		release(t, lock)
	})
}

// The deadline of a lock that came by a notice counts from the last request that was answered, in
// each phase of the renewal of its place. It is extended to the full TTL with the first renewal.
func TestDeadlineOfAGrant(t *testing.T) {
	for phase := 100 * ms; phase < 6*time.Second; phase += 300 * ms {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			var mu sync.Mutex
			var last time.Time // when a request was sent
			record := func(_ context.Context, _ faultstore.Op, apply func()) error {
				mu.Lock()
				last = time.Now()
				mu.Unlock()
				apply()
				return nil
			}
			store.Set(faultstore.Acquire, record)
			store.Set(faultstore.Renew, record)
			first := acquire(t, open(t, store.Store, nil), "a", nil)
			time.AfterFunc(phase, func() {
				store.Set(faultstore.Renew, faultstore.Refuse)
				release(t, first)
			})
			lock := acquire(t, open(t, store, nil), "a", nil)
			mu.Lock()
			end := last.Add(5*time.Second - 52*ms)
			mu.Unlock()
			if !lock.Deadline().Equal(end) {
				t.Errorf("granted after %v: the deadline is %v, want %v", phase, time.Until(lock.Deadline()), time.Until(end))
			}
			store.Set(faultstore.Renew, nil)
			time.Sleep(2 * time.Second)
			if left := time.Until(lock.Deadline()); left < 25*time.Second {
				t.Errorf("granted after %v: %v are left after the first renewal", phase, left)
			}
			release(t, lock)
		})
	}
}

// A lock that this Client does not renew, or that another process may get by a ticket, has its full
// TTL when Acquire returns, also if it came by a notice.
func TestFullTTLOfAGrant(t *testing.T) {
	for name, o := range map[string]*holdfast.Options{
		"NoRenew":  {NoRenew: true, TTL: time.Hour},
		"Detached": {Detached: true, TTL: time.Hour},
	} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			first := acquire(t, open(t, store, nil), "a", nil)
			time.AfterFunc(4*time.Second, func() { release(t, first) })
			lock := acquire(t, open(t, store, nil), "a", o)
			if left := time.Until(lock.Deadline()); left < 59*time.Minute {
				t.Errorf("%s: %v are left of an hour", name, left)
			}
			rec, held, err := store.Lookup(ctx, "a")
			if err != nil || !held || rec.Remaining != time.Hour {
				t.Errorf("%s: the store has it for %v: %v, %v", name, rec.Remaining, held, err)
			}
			release(t, lock)
		})
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
		given := make(chan error, 1)
		go func() { _, err := b.Acquire(limited, "a", nil); given <- err }()
		synctest.Wait()
		got := startWaiters(t, c, "a", 1)
		// The notice is on its way when b gives up.
		store.Once(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
			go func() { cancel(); time.Sleep(ms); apply() }()
			return nil
		})
		began := time.Now()
		release(t, first)
		wantErr(t, <-given, context.Canceled)
		lock := <-got
		if late := time.Since(began); late > 0 {
			t.Errorf("the next waiter has the lock after %v", late)
		}
		time.Sleep(time.Second)
		if lock.Err() != nil {
			t.Error("the late notice ended the lock of another client:", lock.Err())
		}
		release(t, lock)
	})
}

// A notice of a grant that was claimed before comes after the lock has been handed over. It does not
// end the hold, which another process has by then.
func TestLateNoticeOfALockHandedOver(t *testing.T) {
	for _, waits := range []bool{false, true} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			a, b := open(t, store.Store, nil), open(t, store, nil)
			first := acquire(t, a, "a", nil)
			got := make(chan *holdfast.Lock)
			go func() { got <- acquire(t, b, "a", &holdfast.Options{Detached: true}) }()
			synctest.Wait()
			store.Once(faultstore.Notice, faultstore.Delay(4*time.Second))
			release(t, first) // b finds by the renewal of its place, after 1.7 s, that it has the lock.
			ticket, err := (<-got).HandOver()
			if err != nil {
				t.Fatal(err)
			}
			adopted := adopt(t, a, ticket, nil)
			if waits { // b has a queue when the notice comes.
				limited, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				go func() { _, _ = b.Acquire(limited, "a", nil) }()
			}
			time.Sleep(5 * time.Second)
			if err := adopted.Extend(ctx, time.Minute); err != nil {
				t.Error(err)
			}
			release(t, adopted)
		})
	}
}

// Waiters that have died together delay the next one by the TTL of one place.
func TestDeadWaiters(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		first := acquire(t, open(t, store, nil), "a", nil)
		for i := range 10 {
			req := driver.AcquireRequest{Name: "a", Owner: fmt.Sprint("dead ", i), Holder: "dead", TTL: time.Hour, Queue: 5 * time.Second}
			if res, err := store.Acquire(ctx, req); err != nil || !res.Queued {
				t.Fatal(res, err)
			}
		}
		began := time.Now()
		time.AfterFunc(ms, func() { release(t, first) })
		lock := acquire(t, open(t, store, nil), "a", nil)
		if took := time.Since(began); took > 5*time.Second+5*time.Second/3 {
			t.Errorf("ten dead waiters cost %v", took)
		}
		release(t, lock)
	})
}

// A store that has lost all places gets new ones.
func TestLostPlaces(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &replacedStore{Store: memstore.New()}
		b := open(t, store, nil)
		acquire(t, open(t, store.Store, nil), "a", nil)
		got := startWaiters(t, b, "a", 1)
		store.replace(memstore.New())
		began := time.Now()
		lock := <-got
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a new place was made after %v", took)
		}
		release(t, lock)
	})
}

// Holds are not lost because places share their connection: a slow store keeps locks with a TTL
// that allows it, while their Client waits for others.
func TestSlowStoreWithPlaces(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := acquire(t, open(t, store.Store, nil), "other", &holdfast.Options{TTL: time.Hour})
		lock := acquire(t, c, "a", nil)
		slow := func(_ context.Context, _ faultstore.Op, apply func()) error {
			time.Sleep(1500 * ms)
			apply()
			return nil
		}
		store.Set(faultstore.Acquire, slow)
		store.Set(faultstore.Renew, slow)
		limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		_, err := c.Acquire(limited, "other", nil)
		wantErr(t, err, holdfast.ErrHeld)
		if lock.Err() != nil {
			t.Error(lock.Err())
		}
		release(t, other)
	})
}

// A grant by a notice begins a local turn, though the place is short of the TTL.
func TestLocalTurnAfterANotice(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		first := acquire(t, c, "a", nil)
		others := startWaiters(t, other, "a", 1)
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { release(t, acquire(t, c, "a", nil)) })
		}
		synctest.Wait()
		time.Sleep(11 * ms) // The turn of the first is over.
		release(t, first)
		second := <-others
		synctest.Wait()
		before := store.Calls(faultstore.Acquire)
		time.Sleep(time.Second)
		release(t, second)
		group.Wait()
		if n := store.Calls(faultstore.Acquire) - before; n != 0 {
			t.Errorf("%d requests for five holds after a notice", n)
		}
	})
}

// A place with a renewal that hangs is claimed while there is time.
func TestHungRenewalOfAPlace(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		acquire(t, open(t, store.Store, nil), "a", &holdfast.Options{TTL: time.Hour})
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		store.Set(faultstore.Renew, faultstore.Hang)
		claimed := make(chan time.Duration, 100)
		store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
			claimed <- time.Since(began)
			apply()
			return nil
		})
		_, err := c.Acquire(limited, "a", nil)
		wantErr(t, err, holdfast.ErrHeld)
		<-claimed // the first request
		if at := <-claimed; at > 3*time.Second {
			t.Errorf("the place was claimed after %v of 5s", at)
		}
	})
}

// A store that may have missed notices has all waiters ask.
func TestAskOfAllNames(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(&askingStore{Store: memstore.New()})
		c, other := open(t, store, nil), open(t, store.Store, nil)
		a := acquire(t, other, "a", nil)
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- acquire(t, c, "a", nil) }()
		synctest.Wait()
		store.Set(faultstore.Notice, func(context.Context, faultstore.Op, func()) error { return nil })
		release(t, a)
		synctest.Wait()
		store.Set(faultstore.Notice, nil)
		began := time.Now()
		store.Store.(*askingStore).f(driver.Notice{Kind: driver.Ask})
		release(t, <-got)
		if late := time.Since(began); late > 0 {
			t.Errorf("the waiters asked after %v", late)
		}
	})
}

// An askingStore is a store with notices that the test can send.
type askingStore struct {
	*memstore.Store
	f func(driver.Notice)
}

func (s *askingStore) Notify(f func(driver.Notice)) (stop func()) {
	if s.f == nil {
		s.f = f
	}
	return s.Store.Notify(f)
}

// Close gives up places before it ends the notices, and nothing is left in the queue.
func TestCloseWithPlaces(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a := open(t, store, nil)
		b := holdfast.New(store, nil)
		first := acquire(t, a, "a", nil)
		ended := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, "a", nil); ended <- err }()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-ended, holdfast.ErrClosed)
		rec, _, err := store.Lookup(ctx, "a")
		if err != nil || rec.Waiting != 0 {
			t.Errorf("%d places are left: %v", rec.Waiting, err)
		}
		release(t, first)
	})
}

// A requestLog is a store that records the requests of Acquire.
type requestLog struct {
	*memstore.Store
	mu       sync.Mutex
	requests []driver.AcquireRequest
	released []string
}

func (s *requestLog) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	return s.Store.Acquire(ctx, req)
}

func (s *requestLog) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	s.released = append(s.released, req.Owner)
	s.mu.Unlock()
	return s.Store.Release(ctx, req)
}

func (s *requestLog) releasedOwners() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.released)
}

func (s *requestLog) acquired() []driver.AcquireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// A replacedStore is a store that can be replaced by another.
type replacedStore struct {
	driver.Store
	mu sync.Mutex
}

func (s *replacedStore) replace(by driver.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = by
}

func (s *replacedStore) current() driver.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store
}

func (s *replacedStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	return s.current().Acquire(ctx, req)
}

func (s *replacedStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	return s.current().Renew(ctx, reqs)
}

func (s *replacedStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return s.current().Release(ctx, req)
}

// The error of a waiter counts the others that wait.
func TestWaitingOfAHeldError(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		acquire(t, open(t, store, nil), "a", nil)
		for others := range 3 {
			c := open(t, store, nil)
			_, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second})
			var held *holdfast.HeldError
			if !errors.As(err, &held) || held.Record.Waiting != others {
				t.Errorf("beside %d others: %v", others, err)
			}
			synctest.Wait() // The place is released.
			_, err = c.TryAcquire(ctx, "a", nil)
			if !errors.As(err, &held) || held.Record.Waiting != others {
				t.Errorf("a try beside %d that wait: %v", others, err)
			}
			waiting, stop := context.WithCancel(ctx)
			defer stop()
			go func() { _, _ = c.Acquire(waiting, "a", nil) }()
			synctest.Wait()
		}
	})
}
