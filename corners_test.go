package holdfast_test

import (
	"context"
	"errors"
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

// A pokeStore lets a test send notices.
type pokeStore struct {
	driver.Notifier
	f func(string, string, int64)
}

func (s *pokeStore) Notify(f func(string, string, int64)) func() {
	s.f = f
	return s.Notifier.Notify(f)
}

// A lock of NoRenew is not renewed, also if several calls of Extend have failed.
func TestNoRenewAfterFailedExtends(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second, NoRenew: true})
		store.Set(faultstore.Renew, faultstore.Refuse)
		_ = lock.Extend(ctx, 10*time.Second)
		_ = lock.Extend(ctx, 10*time.Second)
		store.Set(faultstore.Renew, nil)
		time.Sleep(10*time.Second + ms)
		wantErr(t, lock.Err(), holdfast.ErrExpired)
		free(t, c, "a")
	})
}

// A notice leads to a look at a lock of NoRenew, which does not prolong it.
func TestNoRenewAndNotices(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		s := &pokeStore{Notifier: memstore.New()}
		c := open(t, s, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 10 * time.Second, NoRenew: true})
		for range 20 { // connections that drop
			time.Sleep(3 * time.Second)
			s.f("", "", 0)
		}
		wantErr(t, lock.Err(), holdfast.ErrExpired)
	})
}

// A Detached lock is confirmed for its whole TTL, also if an earlier attempt was granted too late.
func TestDetachedGrantAfterALateOne(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		other := open(t, store.Store, nil)
		got := make(chan *holdfast.Lock)
		store.Once(faultstore.Acquire, func(ctx context.Context, op faultstore.Op, apply func()) error {
			apply()
			time.Sleep(29800 * ms) // the grant comes after its end, just before the TTL is over
			return nil
		})
		go func() {
			c := holdfast.New(store, &holdfast.Config{RequestTimeout: time.Minute})
			t.Cleanup(func() { c.Close() })
			lock, err := c.Acquire(ctx, "a", &holdfast.Options{TTL: 30 * time.Second, Detached: true})
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		synctest.Wait()
		go func() {
			l := acquire(t, other, "a", nil)
			time.Sleep(time.Second)
			release(t, l)
		}()
		lock := <-got
		if left := time.Until(lock.Deadline()); left < 20*time.Second {
			t.Errorf("the hold of a Detached lock with TTL 30s lasts for %v", left)
		}
		_ = c
	})
}

// Work may release its own lock while Close waits for the work.
func TestWorkThatReleasesBesideClose(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: time.Hour})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = lock.Do(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return lock.Release()
			})
		}()
		synctest.Wait()
		began := time.Now()
		_ = c.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
		<-done
	})
}

// A caller behind one that has given up in an outage waits for MaxOutage, and not for the TTL of
// the other.
func TestLineBehindAHeadThatGaveUp(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release} {
			store.Set(op, faultstore.Hang)
		}
		go func() { _, _ = c.Acquire(ctx, "a", &holdfast.Options{TTL: time.Hour, Wait: time.Second}) }()
		synctest.Wait()
		began := time.Now()
		_, err := c.Acquire(ctx, "a", &holdfast.Options{TTL: time.Hour}) // MaxOutage is 10 s
		wantErr(t, err, holdfast.ErrUnavailable)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// An Extend without an answer leaves time for a renewal.
func TestHungExtendIsNoLoss(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 4 * time.Second})
		time.Sleep(1300 * ms)
		store.Once(faultstore.Renew, faultstore.Hang)
		err := lock.Extend(ctx, 4*time.Second)
		if errors.Is(err, holdfast.ErrLost) || lock.Err() != nil {
			t.Errorf("after one lost request: %v, %v", err, lock.Err())
		}
	})
}

// An Adopt that fails beside ReleaseAll leaves the hold of the ticket as it was.
func TestReleaseAllBesideAdopt(t *testing.T) {
	store := memstore.New()
	c := open(t, store, nil)
	d := open(t, store, nil)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = d.ReleaseAll()
			}
		}
	})
	bad, n := 0, 0
	for range 5000 {
		n++
		lock := acquire(t, c, "a", &holdfast.Options{Detached: true})
		ticket, _ := lock.HandOver()
		lock2, err := d.Adopt(t.Context(), ticket, nil)
		if err != nil {
			if _, err := c.Lookup(t.Context(), "a"); err != nil {
				bad++
			}
		} else {
			_ = lock2.Release()
		}
		_, _ = c.Break(t.Context(), "a", 0)
	}
	close(stop)
	group.Wait()
	if bad > 0 {
		t.Errorf("%d of %d failed Adopts have released the hold", bad, n)
	}
}

// The greatest LocalTurn is a turn without an end.
func TestGreatestLocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{LocalTurn: math.MaxInt64})
		first := acquire(t, c, "a", nil)
		locks := startWaiters(t, c, "a", 10)
		release(t, first)
		for range 10 {
			release(t, <-locks)
		}
		if n := store.Calls(faultstore.Acquire); n > 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// A call with MaxAttempts has no place in the queue of the store. It does not hold up the callers
// of its Client that have one.
func TestMaxAttemptsHoldsUpNobody(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		ctx, cancel := context.WithCancel(ctx)
		var group sync.WaitGroup
		for range 3 { // They keep the name busy.
			other := open(t, store, &holdfast.Config{LocalTurn: -1})
			group.Go(func() {
				for ctx.Err() == nil {
					if lock, err := other.Acquire(ctx, "a", nil); err == nil {
						time.Sleep(100 * ms)
						_ = lock.Release()
					}
				}
			})
		}
		c := open(t, store, nil)
		time.Sleep(time.Second)
		group.Go(func() { _, _ = c.Acquire(ctx, "a", &holdfast.Options{MaxAttempts: math.MaxInt}) })
		time.Sleep(10 * ms)
		lock, err := c.Acquire(ctx, "a", &holdfast.Options{Wait: time.Second}) // Its turn comes in 0.3 s.
		if err != nil {
			t.Error(err)
		} else {
			release(t, lock)
		}
		cancel()
		group.Wait()
	})
}

// A caller in the line waits out an outage as it would alone.
func TestOutageBehindAHead(t *testing.T) {
	loading := func(context.Context, faultstore.Op, func()) error {
		return &driver.RetryError{Err: errors.New("loading")}
	}
	for _, test := range []struct {
		name    string
		waited  time.Duration // before the outage
		outage  time.Duration
		failure faultstore.Fault
		bounded bool // the second caller
	}{
		{"just begun", time.Minute, 5 * time.Second, faultstore.Refuse, false},
		{"announced, with a deadline behind one without", 0, 30 * time.Second, loading, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				c, store := faulty(t, &holdfast.Config{LocalTurn: -1})
				first := acquire(t, c, "a", nil)
				go func() {
					if lock, err := c.Acquire(ctx, "a", nil); err == nil {
						_ = lock.Release()
					}
				}()
				synctest.Wait()
				got := make(chan error, 1)
				go func() {
					o := &holdfast.Options{}
					if test.bounded {
						o.Wait = time.Hour
					}
					lock, err := c.Acquire(ctx, "a", o)
					if err == nil {
						_ = lock.Release()
					}
					got <- err
				}()
				time.Sleep(test.waited)
				store.Set(faultstore.Acquire, test.failure)
				release(t, first)
				time.Sleep(test.outage)
				store.Set(faultstore.Acquire, nil)
				if err := <-got; err != nil {
					t.Errorf("after an outage of %v: %v", test.outage, err)
				}
			})
		})
	}
}

// A single refused request fails none of those that wait.
func TestRefusedRequestBehindAHead(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		first := acquire(t, c, "a", nil)
		errs := make(chan error, 10)
		for range 10 {
			go func() {
				lock, err := c.Acquire(ctx, "a", nil)
				if errs <- err; err == nil {
					_ = lock.Release()
				}
			}()
		}
		time.Sleep(11 * time.Second)
		store.Once(faultstore.Acquire, faultstore.Refuse)
		release(t, first)
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// A refusal after a request without an answer is part of the same outage.
func TestHungThenRefused(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, faultstore.Hang)
		store.Set(faultstore.Renew, faultstore.Refuse)
		time.AfterFunc(6*time.Second, func() { store.Set(faultstore.Acquire, nil); store.Set(faultstore.Renew, nil) })
		release(t, acquire(t, c, "a", nil))
	})
}

// A handle that was released hands nothing over, also at the same moment.
func TestHandOverBesideRelease(t *testing.T) {
	c := open(t, memstore.New(), nil)
	o := &holdfast.Options{Detached: true, Reentrant: true}
	for range 2000 {
		a, b := acquire(t, c, "a", o), acquire(t, c, "a", o)
		var group sync.WaitGroup
		var err error
		group.Go(func() { _, err = a.HandOver() })
		group.Go(func() { _ = a.Release() })
		group.Wait()
		if err == nil {
			t.Fatal("a handle handed over the lock of another")
		}
		release(t, b)
	}
}

// A Detached lock that MaxHold has ended is released.
func TestDetachedMaxHold(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, nil)
		lock := acquire(t, c, "a", &holdfast.Options{TTL: 24 * time.Hour, Detached: true, MaxHold: time.Minute})
		time.Sleep(2 * time.Minute)
		wantErr(t, lock.Release(), holdfast.ErrMaxHold)
		synctest.Wait()
		free(t, c, "a")
	})
}

// The greatest RequestTimeout bounds nothing.
func TestGreatestRequestTimeout(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{RequestTimeout: math.MaxInt64})
		lock := acquire(t, c, "a", nil)
		store.Once(faultstore.Release, faultstore.Refuse)
		release(t, lock)
	})
}

// An Extend whose ctx has ended sends nothing.
func TestExtendWithAnEndedContext(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		lock := acquire(t, c, "a", nil)
		over, cancel := context.WithTimeout(ctx, ms)
		defer cancel()
		<-over.Done()
		wantErr(t, lock.Extend(over, time.Minute), context.DeadlineExceeded)
		if n := store.Calls(faultstore.Renew); n > 0 {
			t.Errorf("%d requests", n)
		}
		release(t, lock)
	})
}

// A Release beside Close passes the lock on to nobody.
func TestNothingIsHeldAfterClose(t *testing.T) {
	for range 100 {
		store, waits := memstore.New(), make(chan struct{}, 2)
		c := holdfast.New(store, &holdfast.Config{
			LocalTurn: time.Hour,
			Hooks:     holdfast.OnEvent(holdfast.EventWaiting, func(holdfast.Event) { waits <- struct{}{} }),
		})
		first, got := acquire(t, c, "a", nil), make(chan *holdfast.Lock, 2)
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				lock, _ := c.Acquire(t.Context(), "a", nil)
				got <- lock
			})
			<-waits
		}
		release(t, first)
		lock := <-got
		for range 1000 { // Their end takes a while, in the middle of the Release.
			_, cancel := context.WithCancel(lock.Context())
			defer cancel()
		}
		group.Go(func() { _ = lock.Release() })
		<-lock.Context().Done()
		_ = c.Close()
		group.Wait()
		if records, _ := store.Lookup(t.Context(), "a"); len(records) > 0 {
			t.Fatalf("after Close: %v", records)
		}
	}
}

// A reentrant call joins no hold whose time is over, also if the scheduler has not noticed that.
func TestJoinAfterASuspend(t *testing.T) {
	var suspended atomic.Int64
	defer holdfast.SetBootClock(func() time.Duration {
		return time.Since(time.Time{}) + time.Duration(suspended.Load())
	})()
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, nil)
		o := &holdfast.Options{Reentrant: true}
		acquire(t, c, "a", o)
		suspended.Store(int64(time.Hour))
		if lock, err := c.TryAcquire(ctx, "a", o); err == nil && lock.Err() != nil {
			t.Errorf("TryAcquire has returned a lock that is not held: %v", lock.Err())
		}
	})
}

// A place becomes a hold by a notice with its own token within its time, and by no other.
func TestNoticesThatGrantNothing(t *testing.T) {
	for name, poke := range map[string]func(s *pokeStore, store *faultstore.Store, owner string, token int64){
		"another token": func(s *pokeStore, _ *faultstore.Store, owner string, token int64) {
			s.f("a", owner, token+1)
		},
		"after the end of the place": func(s *pokeStore, store *faultstore.Store, owner string, token int64) {
			store.Set(faultstore.Renew, faultstore.Refuse)
			time.Sleep(6 * time.Second)
			s.f("a", owner, token)
			store.Set(faultstore.Renew, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, ctx context.Context) {
				var owner string
				var token int64
				store := faultstore.Wrap(memstore.New())
				s := &pokeStore{Notifier: &spyStore{Notifier: store, seen: func(req driver.Request, res driver.Result) {
					owner, token = req.Owner, res.Token
				}}}
				first := acquire(t, open(t, store.Store, nil), "a", nil)
				c := open(t, s, nil)
				got := make(chan *holdfast.Lock, 1)
				go func() { got <- acquire(t, c, "a", nil) }()
				synctest.Wait()
				poke(s, store, owner, token)
				synctest.Wait()
				select {
				case <-got:
					t.Error("granted while another has the lock")
				default:
				}
				release(t, first)
				release(t, <-got)
			})
		})
	}
}

// A spyStore reports the answers to Acquire.
type spyStore struct {
	driver.Notifier
	seen func(driver.Request, driver.Result)
}

func (s *spyStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Notifier.Acquire(ctx, req)
	s.seen(req, res)
	return res, err
}

// A notice for a hold that has ended leads to no request.
func TestNoticeAfterTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		s := &pokeStore{Notifier: store}
		c := open(t, s, nil)
		lock := acquire(t, c, "a", nil)
		store.Once(faultstore.Release, faultstore.Hang)
		go func() { _ = lock.Release() }()
		synctest.Wait()
		s.f("a", "", 0)
		synctest.Wait()
		if n := store.Calls(faultstore.Renew); n > 0 {
			t.Errorf("%d renewals", n)
		}
		time.Sleep(time.Minute)
	})
}

// A release goes on until the store cannot have the lock any more, by the steps of its clock.
func TestReleaseLastsForTheGrain(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.NewCoarse(10 * time.Second))
		c := open(t, store, &holdfast.Config{MaxOutage: time.Hour})
		lock := acquire(t, c, "a", &holdfast.Options{TTL: time.Minute})
		store.Set(faultstore.Release, faultstore.Refuse)
		wantErr(t, lock.Release(), holdfast.ErrUnavailable)
		time.Sleep(65 * time.Second)
		n := store.Calls(faultstore.Release)
		time.Sleep(3 * time.Second)
		if store.Calls(faultstore.Release) == n {
			t.Error("it has stopped before the end of the grain")
		}
		store.Set(faultstore.Release, nil)
		time.Sleep(time.Second)
		free(t, c, "a")
	})
}

// A store that announces a long outage is tried again each second.
func TestAnnouncedOutageThatEndsEarly(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		store.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
			return &driver.RetryError{Err: errors.New("loading"), After: time.Hour}
		})
		time.AfterFunc(5*time.Second, func() { store.Set(faultstore.Acquire, nil) })
		began := time.Now()
		release(t, acquire(t, c, "a", nil))
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Each caller waits for Config.MaxOutage, also one that comes late in an outage.
func TestCallerLateInAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		shared := &holdfast.Options{Shared: true}
		defer release(t, acquire(t, c, "a", shared))
		store.Set(faultstore.Acquire, faultstore.Refuse)
		first := make(chan error, 1)
		go func() { _, err := c.Acquire(ctx, "a", shared); first <- err }()
		time.Sleep(9 * time.Second)
		time.AfterFunc(5*time.Second, func() { store.Set(faultstore.Acquire, nil) })
		release(t, acquire(t, c, "a", shared))
		wantErr(t, <-first, holdfast.ErrUnavailable)
	})
}
