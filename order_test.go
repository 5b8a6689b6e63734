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

// A requestLog is a store that records the requests to it.
type requestLog struct {
	*memstore.Store
	mu       sync.Mutex
	acquired []driver.Request
	released []string  // owners
	end      time.Time // the greatest end that was confirmed
}

func (s *requestLog) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	sent := time.Now()
	res, err := s.Store.Acquire(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquired = append(s.acquired, req)
	if res.Waiting {
		s.end = sent.Add(driver.Validity(req.Place))
	}
	return res, err
}

func (s *requestLog) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	sent := time.Now()
	entries, err := s.Store.Renew(ctx, reqs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := sent.Add(driver.Validity(reqs[0].TTL)); end.After(s.end) {
		s.end = end
	}
	return entries, err
}

func (s *requestLog) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	s.released = append(s.released, req.Owner)
	s.mu.Unlock()
	return s.Store.Release(ctx, req)
}

// owners returns the owner of each request of Acquire.
func (s *requestLog) owners() (owners []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, req := range s.acquired {
		owners = append(owners, req.Owner)
	}
	return owners
}

// Acquire reaches the store once for an owner. What became of a request whose reply was lost is
// learned by a renewal.
func TestLostReplyIsLookedFor(t *testing.T) {
	for _, held := range []bool{false, true} {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprint("held ", held, " try ", try), func(t *testing.T) {
				virtual(t, func(t *testing.T, ctx context.Context) {
					log := &requestLog{Store: memstore.New()}
					store := faultstore.Wrap(log)
					c := open(t, store, nil)
					if held {
						first := acquire(t, open(t, log.Store, nil), "a", nil)
						time.AfterFunc(time.Second, func() { release(t, first) })
					}
					store.Once(faultstore.Acquire, faultstore.LoseReply)
					call := c.Acquire
					if try {
						call = c.TryAcquire
					}
					lock, err := call(ctx, "a", nil)
					switch {
					case err == nil:
						release(t, lock)
					case !held || !try:
						t.Error(err)
					case !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, holdfast.ErrUnavailable):
						t.Error(err)
					}
					owners := log.owners()
					slices.Sort(owners)
					if n := len(owners); n != len(slices.Compact(owners)) {
						t.Errorf("an owner was sent twice: %q", owners)
					}
					synctest.Wait()
					time.Sleep(holdfast.DefaultTTL)
					free(t, c, "a")
				})
			})
		}
	}
}

// A hold that is broken while its grant is on the way is not taken again for the same owner, which
// would make the late grant believable. The owner is released.
func TestBreakWhileTheReplyIsLost(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		log := &requestLog{Store: memstore.New()}
		store := faultstore.Wrap(log)
		c, other := open(t, store, nil), open(t, log.Store, nil)
		store.Once(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
			apply()
			if _, err := other.Break(ctx, "a", 0); err != nil {
				t.Error(err)
			}
			return faultstore.ErrReplyLost
		})
		release(t, acquire(t, c, "a", nil))
		synctest.Wait()
		owners := log.owners()
		if len(owners) != 2 || owners[0] == owners[1] {
			t.Errorf("the owners %q, want two", owners)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		if !slices.Contains(log.released, owners[0]) {
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

// The deadline of a lock that came by a notice counts from the request that confirms the most, in each
// phase of the renewal of its place. It is extended to the full TTL at once.
func TestDeadlineOfAGrant(t *testing.T) {
	for phase := 100 * ms; phase < 6*time.Second; phase += 300 * ms {
		virtual(t, func(t *testing.T, ctx context.Context) {
			log := &requestLog{Store: memstore.New()}
			store := faultstore.Wrap(log)
			first := acquire(t, open(t, log.Store, nil), "a", nil)
			time.AfterFunc(phase, func() {
				store.Set(faultstore.Renew, faultstore.Refuse)
				release(t, first)
			})
			lock := acquire(t, open(t, store, nil), "a", nil)
			if !lock.Deadline().Equal(log.end) {
				t.Errorf("granted after %v: the deadline is in %v, want %v", phase, time.Until(lock.Deadline()), time.Until(log.end))
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
			c := open(t, store, nil)
			lock := acquire(t, c, "a", o)
			if left := time.Until(lock.Deadline()); left < 59*time.Minute {
				t.Errorf("%s: %v are left of an hour", name, left)
			}
			if rec := lookup(t, c, "a"); rec.Remaining != time.Hour {
				t.Errorf("%s: the store has it for %v", name, rec.Remaining)
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

// A notice of a grant that was found before comes after the lock has been handed over. It does not
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
			store.Once(faultstore.Notice, func(_ context.Context, _ faultstore.Op, apply func()) error {
				time.AfterFunc(4*time.Second, apply)
				return nil
			})
			release(t, first) // b finds by the renewal of its place that it has the lock.
			ticket, err := (<-got).HandOver()
			if err != nil {
				t.Fatal(err)
			}
			adopted := adopt(t, a, ticket, nil)
			if waits { // b waits for the name when the notice comes.
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
		began := time.Now()
		time.AfterFunc(ms, func() { release(t, first) })
		lock := acquire(t, open(t, store, nil), "a", nil)
		if took := time.Since(began); took > 5*time.Second+5*time.Second/3 {
			t.Errorf("ten dead waiters cost %v", took)
		}
		release(t, lock)
	})
}

// A replacedStore is a store that can be replaced by another.
type replacedStore struct {
	driver.Store
	mu sync.Mutex
}

func (s *replacedStore) current(replace ...driver.Store) driver.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, s.Store = range replace {
	}
	return s.Store
}

func (s *replacedStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	return s.current().Acquire(ctx, req)
}

func (s *replacedStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	return s.current().Renew(ctx, reqs)
}

func (s *replacedStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return s.current().Release(ctx, req)
}

// A store that has lost all places gets new ones. A hold that it has lost is lost, also if its owner
// has a place.
func TestStoreThatForgets(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &replacedStore{Store: memstore.New()}
		b := open(t, store, nil)
		acquire(t, open(t, store.Store, nil), "a", nil)
		got := startWaiters(t, b, "a", 1)
		store.current(memstore.New())
		began := time.Now()
		lock := <-got
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a new place was made after %v", took)
		}
		store.current(waitingStore{store.current()})
		<-lock.Context().Done()
		wantErr(t, lock.Err(), holdfast.ErrLost, holdfast.ErrTaken)
		_ = lock.Release()
	})
}

// A waitingStore has a place for each owner.
type waitingStore struct{ driver.Store }

func (s waitingStore) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(reqs))
	for i, req := range reqs {
		entries[i] = driver.Entry{State: driver.Waiting, Token: req.Token}
	}
	return entries, nil
}

// Holds are not lost because places share their connection: a slow store keeps locks with a TTL
// that allows it, while their Client waits for others.
func TestSlowStoreWithPlaces(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := acquire(t, open(t, store.Store, nil), "other", &holdfast.Options{TTL: time.Hour})
		lock := acquire(t, c, "a", nil)
		store.Set(faultstore.Acquire, far(3*time.Second))
		store.Set(faultstore.Renew, far(3*time.Second))
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

// A renewal of a place that hangs costs the waiter no turn.
func TestHungRenewalOfAPlace(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		first := acquire(t, open(t, store.Store, nil), "a", &holdfast.Options{TTL: time.Hour})
		got := startWaiters(t, c, "a", 1)
		behind := startWaiters(t, open(t, store.Store, nil), "a", 1)
		store.Once(faultstore.Renew, faultstore.Hang)
		time.Sleep(6 * time.Second)
		release(t, first)
		synctest.Wait()
		select {
		case <-behind:
			t.Fatal("another waiter has overtaken it")
		default:
			release(t, <-got)
		}
		release(t, <-behind)
	})
}

// A noticeStore is a store with notices that the test can send.
type noticeStore struct {
	*memstore.Store
	send  func(name, owner string, token int64)
	owner string // of the last request
}

func (s *noticeStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.owner = req.Owner
	return s.Store.Acquire(ctx, req)
}

func (s *noticeStore) Notify(f func(name, owner string, token int64)) (stop func()) {
	s.send = f
	return s.Store.Notify(f)
}

// A store that may have missed notices has waiters look: the one with the owner, all of the name, all.
func TestNoticeToLook(t *testing.T) {
	for _, notice := range []string{"owner", "name", "all"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			inner := &noticeStore{Store: memstore.New()}
			store := faultstore.Wrap(inner)
			c, other := open(t, store, nil), open(t, inner.Store, nil)
			a := acquire(t, other, "a", nil)
			got := startWaiters(t, c, "a", 1)
			store.Set(faultstore.Notice, func(context.Context, faultstore.Op, func()) error { return nil })
			release(t, a)
			synctest.Wait()
			store.Set(faultstore.Notice, nil)
			began := time.Now()
			switch notice {
			case "owner":
				inner.send("a", inner.owner, 0)
			case "name":
				inner.send("a", "", 0)
			default:
				inner.send("", "", 0)
			}
			release(t, <-got)
			if late := time.Since(began); late > 0 {
				t.Errorf("%s: the waiter looked after %v", notice, late)
			}
		})
	}
}

// Close gives up places before it ends the notices, and nothing is left in the queue.
func TestCloseWithPlaces(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		a, b := open(t, store, nil), holdfast.New(store, nil)
		first := acquire(t, a, "a", nil)
		ended := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, "a", nil); ended <- err }()
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-ended, holdfast.ErrClosed)
		if rec := lookup(t, a, "a"); rec.Waiting != 0 {
			t.Errorf("%d places are left", rec.Waiting)
		}
		release(t, first)
	})
}

// Each shared or limited caller of a Client has an entry of its own; of the others the first has one.
func TestEntriesOfAClient(t *testing.T) {
	for want, o := range map[int]*holdfast.Options{5: {Limit: 2}, 4: shared, 1: nil} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			other, c := open(t, store, nil), open(t, store, nil)
			first := acquire(t, other, "a", nil)
			limited, cancel := context.WithCancel(ctx)
			var group sync.WaitGroup
			for range max(want, 4) {
				group.Go(func() { _, _ = c.Acquire(limited, "a", o) })
			}
			synctest.Wait()
			if rec := lookup(t, other, "a"); rec.Waiting != want {
				t.Errorf("%d places, want %d", rec.Waiting, want)
			}
			cancel()
			group.Wait()
			synctest.Wait()
			if rec := lookup(t, other, "a"); rec.Waiting != 0 {
				t.Errorf("%d places are left", rec.Waiting)
			}
			release(t, first)
		})
	}
}

// A notice that comes while the Acquire of its owner has no answer yet is kept until the answer: the
// grant holds and is renewed, and a notice to look leads to a look at once.
func TestNoticeDuringALongRequest(t *testing.T) {
	for _, grant := range []bool{true, false} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			inner := &noticeStore{Store: memstore.New()}
			store := faultstore.Wrap(inner)
			c := open(t, store, nil)
			first := acquire(t, open(t, inner.Store, nil), "a", nil)
			if !grant {
				store.Set(faultstore.Notice, func(context.Context, faultstore.Op, func()) error { return nil })
			}
			store.Once(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				apply()
				release(t, first)
				synctest.Wait()
				if !grant {
					store.Set(faultstore.Notice, nil)
					inner.send("a", inner.owner, 0)
				}
				time.Sleep(time.Second)
				return nil
			})
			began := time.Now()
			lock := acquire(t, c, "a", nil)
			if took := time.Since(began); took != time.Second {
				t.Errorf("taken after %v, want 1s", took)
			}
			time.Sleep(time.Minute)
			release(t, lock)
		})
	}
}
