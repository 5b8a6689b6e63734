package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A limitLog checks that no two holds have one token, and that no more hold than the limit.
type limitLog struct {
	t      *testing.T
	limit  int
	mu     sync.Mutex
	used   int
	most   int
	tokens map[int64]bool
}

func (l *limitLog) begin(token int64, weight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used += weight; l.used > l.limit {
		l.t.Errorf("%d are held, of %d", l.used, l.limit)
	}
	if l.tokens[token] {
		l.t.Errorf("two holds have token %d", token)
	}
	if l.tokens == nil {
		l.tokens = map[int64]bool{}
	}
	l.tokens[token] = true
	l.most = max(l.most, l.used)
}

func (l *limitLog) end(weight int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= weight
}

// Goroutines of several Clients hold the slots of one lock, and all of it:
// the limit is kept, each hold has a token of its own, and most are granted without a request.
func TestLimitInLocalTurns(t *testing.T) {
	t.Parallel()
	perGoroutine := 1000
	if testing.Short() {
		perGoroutine = 100
	}
	const limit, clients, goroutines = 6, 3, 24
	store := faultstore.Wrap(memstore.New())
	log := limitLog{t: t, limit: limit}
	var group sync.WaitGroup
	for range clients {
		c := open(t, store, nil)
		for i := range goroutines {
			group.Go(func() {
				for n := range perGoroutine {
					o, weight := &holdfast.Options{Limit: limit}, 1
					if i < 2 && n%50 == 0 {
						o, weight = nil, limit // a writer
					}
					lock, err := c.Acquire(t.Context(), "a", o)
					if err != nil {
						t.Error(err)
						return
					}
					log.begin(lock.Token(), weight)
					if n%10 == 0 {
						time.Sleep(10 * time.Microsecond)
					}
					log.end(weight)
					release(t, lock)
				}
			})
		}
	}
	group.Wait()
	holds, requests := clients*goroutines*perGoroutine, store.Calls(faultstore.Acquire)
	if len(log.tokens) != holds || requests > holds/2 || log.most < limit {
		t.Errorf("%d holds, %d of %d at once, %d requests", len(log.tokens), log.most, limit, requests)
	}
	free(t, open(t, store, nil), "a")
}

// A writer has a token above those of all holds before it and below those of all behind it, those
// included that were passed on.
func TestTokenOfAWriterAmongLocalTurns(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		clients := []*holdfast.Client{open(t, store, nil), open(t, store, nil)}
		var mu sync.Mutex
		var most, floor int64
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				for n := range 100 {
					var o *holdfast.Options
					if i > 0 || n%10 > 0 {
						o = &holdfast.Options{Limit: 3}
					}
					lock := acquire(t, clients[i%2], "a", o)
					mu.Lock()
					if token := lock.Token(); token <= floor || o == nil && token <= most {
						t.Errorf("token %d of %+v, after a writer with %d and holds up to %d", token, o, floor, most)
					}
					most = max(most, lock.Token())
					if o == nil {
						floor = most
					}
					mu.Unlock()
					time.Sleep(100 * time.Microsecond)
					release(t, lock)
				}
			})
		}
		group.Wait()
	})
}

// As many goroutines of a Client send requests as may hold the lock together. The others wait in
// the Client in order, and get a share that is released without a request, if they want the same.
func TestWaitersOfALimit(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
		two := &holdfast.Options{Limit: 2}
		locks := make(chan *holdfast.Lock, 30)
		wait := func(o *holdfast.Options) {
			go func() { locks <- acquire(t, c, "a", o) }()
			synctest.Wait()
		}
		for range 10 {
			wait(two)
		}
		if n := store.Calls(faultstore.Acquire); n != 2 || len(locks) != 2 {
			t.Fatalf("%d requests, %d holds, want 2 and 2", n, len(locks))
		}
		release(t, <-locks) // Its grant has one token, since nobody waited then.
		release(t, <-locks)
		before := []*holdfast.Lock{<-locks, <-locks} // with several
		requests := store.Calls(faultstore.Acquire)
		wait(&holdfast.Options{Limit: 1}) // another limit: a head of its own
		if n := store.Calls(faultstore.Acquire) - requests; n != 1 {
			t.Errorf("%d requests of a caller with another limit", n)
		}
		for i := range 6 {
			time.Sleep(ms)
			release(t, before[i%2])
			lock := <-locks
			if lock.Token() != before[i%2].Token()+1 || lock.Since() != time.Now() || !lock.Deadline().Equal(before[i%2].Deadline()) {
				t.Errorf("hold %d: %v since %v until %v after %v until %v", i, lock, lock.Since(), lock.Deadline(), before[i%2], before[i%2].Deadline())
			}
			if before[i%2].Context().Err() == nil || lock.Context().Err() != nil {
				t.Errorf("the contexts: %v, %v", before[i%2].Context().Err(), lock.Context().Err())
			}
			before[i%2] = lock
		}
		if n := store.Calls(faultstore.Acquire) - requests; n != 1 || len(locks) != 0 {
			t.Errorf("%d requests, %d holds more", n, len(locks))
		}
		release(t, before[0])
		release(t, before[1])
		release(t, <-locks) // that of the other limit, which has waited in the store
		synctest.Wait()
		if n := holdfast.QueueCount(c); n > 0 {
			t.Errorf("%d queues are left", n)
		}
		free(t, c, "a")
	})
}

// Another Client that waits has a share after one turn and one hold, however many goroutines wait
// here, and so has a goroutine here with another limit, and a writer.
func TestOthersAfterALocalTurnOfALimit(t *testing.T) {
	for _, hold := range []time.Duration{100 * time.Microsecond, ms, 7 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			busy, other := open(t, store, nil), open(t, store, nil)
			ctx, cancel := context.WithCancel(ctx)
			var group sync.WaitGroup
			for range 12 {
				group.Go(func() {
					for ctx.Err() == nil {
						lock, err := busy.Acquire(ctx, "a", &holdfast.Options{Limit: 3})
						if err == nil {
							time.Sleep(hold)
							release(t, lock)
						}
					}
				})
			}
			for range 20 {
				for _, c := range []*holdfast.Client{busy, other} {
					for _, o := range []*holdfast.Options{nil, shared, {Limit: 1}, {Limit: 2}, {Limit: 3}} {
						if c == busy && o != nil && o.Limit == 3 {
							continue
						}
						began := time.Now()
						release(t, acquire(t, c, "a", o))
						if took := time.Since(began); took > 10*ms+hold {
							t.Errorf("holds of %v: %+v has waited %v", hold, o, took)
						}
						time.Sleep(20 * ms)
					}
				}
			}
			cancel()
			group.Wait()
		})
	}
}

// A try is refused while this Client has all shares, without a request; else it sends its own.
func TestTryOfALimitedLock(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		two := &holdfast.Options{Limit: 2}
		one, lock := acquire(t, c, "a", two), acquire(t, c, "a", two)
		requests := store.Calls(faultstore.Acquire)
		var held *holdfast.HeldError
		_, err := c.TryAcquire(ctx, "a", two)
		if !errors.As(err, &held) || !held.Self || held.Record.Token != lock.Token() || held.Record.Limit != 2 {
			t.Errorf("a try: %v", err)
		}
		if n := store.Calls(faultstore.Acquire) - requests; n != 0 {
			t.Errorf("%d requests of a try of what this Client has", n)
		}
		release(t, one)
		store.Once(faultstore.Acquire, faultstore.Refuse)
		_, err = c.TryAcquire(ctx, "a", two)
		wantErr(t, err, holdfast.ErrUnavailable)
		lock2, err := c.TryAcquire(ctx, "a", two)
		if err != nil {
			t.Fatal(err)
		}
		release(t, lock)
		release(t, lock2)
	})
}

// A lease that is lost ends the hold that it was passed on to, and no other.
func TestLossOfAPassedShare(t *testing.T) {
	for _, way := range []string{"break here", "break elsewhere", "own token", "renewal fails"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
			other := open(t, store, nil)
			two := &holdfast.Options{Limit: 2}
			locks := make(chan *holdfast.Lock, 8)
			for range 8 {
				go func() {
					if lock, err := c.Acquire(ctx, "a", two); err == nil {
						locks <- lock
					}
				}()
				synctest.Wait()
			}
			release(t, <-locks)
			release(t, <-locks)
			release(t, <-locks)                // its grant has several tokens
			beside, passed := <-locks, <-locks // and one of these is the second of them
			rec, err := c.Lookup(ctx, "a")
			if err != nil || len(rec.Others) != 1 {
				t.Fatalf("%+v, %v; want two holds", rec, err)
			}
			inStore := []int64{rec.Token, rec.Others[0].Token}
			if slices.Contains(inStore, passed.Token()) {
				beside, passed = passed, beside
			}
			if !slices.Contains(inStore, passed.Token()-1) || !slices.Contains(inStore, beside.Token()) {
				t.Fatalf("the store has %v; want the tokens before %d, and %d", inStore, passed.Token(), beside.Token())
			}
			switch way {
			case "break here":
				_, err = c.BreakToken(ctx, "a", passed.Token()-1)
			case "own token":
				_, err = c.BreakToken(ctx, "a", passed.Token())
			case "break elsewhere":
				_, err = other.BreakToken(ctx, "a", passed.Token()-1)
				time.Sleep(holdfast.DefaultTTL)
			default:
				store.Set(faultstore.Renew, faultstore.Refuse)
				time.Sleep(holdfast.DefaultTTL)
				wantErr(t, beside.Err(), holdfast.ErrLost)
				beside = nil
			}
			if err != nil {
				t.Errorf("%s: %v", way, err)
			}
			synctest.Wait()
			wantErr(t, passed.Err(), holdfast.ErrLost)
			if passed.Context().Err() == nil {
				t.Errorf("%s: the context has not ended", way)
			}
			if beside != nil && beside.Err() != nil {
				t.Errorf("%s: the other hold: %v", way, beside.Err())
			}
			_ = passed.Release()
			store.Set(faultstore.Renew, nil)
			next := <-locks
			if next.Token() <= passed.Token() {
				t.Errorf("%s: token %d after %d", way, next.Token(), passed.Token())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			free(t, other, "a")
		})
	}
}

// Callers that give up while shares are passed on delay nobody, leave nothing, and are reported to
// the hooks neither at the beginning of a hold nor at its end.
func TestCancelledWaitersOfALimit(t *testing.T) {
	t.Parallel()
	const limit = 5
	var acquired, ended atomic.Int64
	store := memstore.New()
	c := open(t, store, &holdfast.Config{LocalTurn: time.Second, Hooks: countHolds(&acquired, &ended)})
	log := limitLog{t: t, limit: limit}
	var group sync.WaitGroup
	for i := range 256 {
		group.Go(func() {
			for n := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%3 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(1000))*time.Microsecond, cancel)
				}
				lock, err := c.Acquire(ctx, "a", &holdfast.Options{Limit: limit})
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if lock != nil {
					log.begin(lock.Token(), 1)
					log.end(1)
					release(t, lock)
				}
			}
		})
	}
	group.Wait()
	other := open(t, store, nil)
	release(t, acquire(t, other, "a", nil)) // what is given back in the background is free soon
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	free(t, other, "a")
	if n := holdfast.QueueCount(c); n > 0 {
		t.Errorf("%d queues are left", n)
	}
	if acquired.Load() != ended.Load() || acquired.Load() < int64(len(log.tokens)) {
		t.Errorf("%d acquired, %d released, %d held", acquired.Load(), ended.Load(), len(log.tokens))
	}
}

// ReleaseAll and Close release shares that were passed on, once each, and pass on none after.
func TestEndOfPassedShares(t *testing.T) {
	for _, how := range []string{"ReleaseAll", "Close"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := faultstore.Wrap(memstore.New())
			c := holdfast.New(store, &holdfast.Config{LocalTurn: time.Hour})
			var group sync.WaitGroup
			var ending atomic.Bool
			for range 20 {
				group.Go(func() {
					for !ending.Load() {
						lock, err := c.Acquire(ctx, "a", &holdfast.Options{Limit: 4})
						if err != nil {
							wantErr(t, err, holdfast.ErrClosed)
							return
						}
						time.Sleep(ms)
						_ = lock.Release()
					}
				})
			}
			time.Sleep(100*ms + ms/2)
			synctest.Wait()
			ending.Store(true)
			before := store.Calls(faultstore.Release)
			if how == "Close" {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				free(t, open(t, store, nil), "a")
			} else if err := c.ReleaseAll(); err != nil || store.Calls(faultstore.Release) < before+4 {
				t.Errorf("ReleaseAll: %v, %d releases", err, store.Calls(faultstore.Release)-before)
			}
			group.Wait()
			if how != "Close" {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if grants, releases := store.Calls(faultstore.Acquire), store.Calls(faultstore.Release); grants != releases {
				t.Errorf("%s: %d acquisitions and %d releases", how, grants, releases)
			}
			free(t, open(t, store, nil), "a")
		})
	}
}
