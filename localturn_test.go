package holdfast_test

import (
	"context"
	"errors"
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

// A tokenLog checks that the tokens of one name rise, and that its holds exclude each other.
type tokenLog struct {
	t     *testing.T
	mu    sync.Mutex
	held  bool
	last  int64
	holds int
}

func (l *tokenLog) begin(token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		l.t.Error("two holders at once")
	}
	if token <= l.last {
		l.t.Errorf("token %d after %d", token, l.last)
	}
	l.held, l.last = true, token
	l.holds++
}

func (l *tokenLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// Goroutines of several Clients hold one lock in turn: each hold has a token above all before it,
// although most are granted without a request.
func TestTokensRiseInLocalTurns(t *testing.T) {
	t.Parallel()
	perGoroutine := 2000
	if testing.Short() {
		perGoroutine = 200
	}
	store := faultstore.Wrap(memstore.New())
	log := tokenLog{t: t}
	var group sync.WaitGroup
	for range 3 {
		c := open(t, store, nil)
		for range 8 {
			group.Go(func() {
				for range perGoroutine {
					lock, err := c.Acquire(t.Context(), "a", nil)
					if err != nil {
						t.Error(err)
						return
					}
					log.begin(lock.Token())
					log.end()
					release(t, lock)
				}
			})
		}
	}
	group.Wait()
	requests := store.Calls(faultstore.Acquire)
	if log.holds != 3*8*perGoroutine || requests > log.holds/2 {
		t.Errorf("%d holds and %d requests", log.holds, requests)
	}
}

// A turn ends: LocalTurn and one hold after a grant at the latest, the store has the lock back,
// however many goroutines wait here.
func TestLocalTurnEnds(t *testing.T) {
	for _, hold := range []time.Duration{100 * time.Microsecond, ms, 7 * ms, 30 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, store := faulty(t, nil)
			var granted time.Time
			store.Set(faultstore.Acquire, func(_ context.Context, _ faultstore.Op, apply func()) error {
				apply()
				granted = time.Now()
				return nil
			})
			store.Set(faultstore.Release, func(_ context.Context, _ faultstore.Op, apply func()) error {
				if took := time.Since(granted); took > 10*ms+hold {
					t.Errorf("holds of %v: released %v after the grant", hold, took)
				}
				apply()
				return nil
			})
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					for range 200 {
						lock := acquire(t, c, "a", nil)
						time.Sleep(hold)
						release(t, lock)
					}
				})
			}
			group.Wait()
		})
	}
}

// Another Client that waits has the lock after one turn and one hold, however many goroutines wait
// here.
func TestOtherClientsAfterALocalTurn(t *testing.T) {
	for _, hold := range []time.Duration{100 * time.Microsecond, ms, 7 * ms} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := memstore.New()
			busy, other := open(t, store, nil), open(t, store, nil)
			ctx, cancel := context.WithCancel(ctx)
			var group sync.WaitGroup
			for range 4 {
				group.Go(func() {
					for ctx.Err() == nil {
						lock, err := busy.Acquire(ctx, "a", nil)
						if err == nil {
							time.Sleep(hold)
							release(t, lock)
						}
					}
				})
			}
			for range 20 {
				began := time.Now()
				release(t, acquire(t, other, "a", nil))
				if took := time.Since(began); took > 10*ms+hold {
					t.Errorf("holds of %v: another client has waited %v", hold, took)
				}
				time.Sleep(20 * ms)
			}
			cancel()
			group.Wait()
		})
	}
}

// holdInTurn lets goroutines hold a lock one after the other, each for some time, after a first hold,
// of a single token, during which all of them wait.
func holdInTurn(t *testing.T, c *holdfast.Client, hold time.Duration, options ...*holdfast.Options) {
	t.Helper()
	first := acquire(t, c, "a", nil)
	var group sync.WaitGroup
	log := tokenLog{t: t}
	for _, o := range options {
		group.Go(func() {
			lock := acquire(t, c, "a", o)
			log.begin(lock.Token())
			time.Sleep(hold)
			log.end()
			release(t, lock)
		})
		synctest.Wait()
	}
	release(t, first)
	group.Wait()
}

// Only holds with the same plain options are passed on, within the turn and the tokens of the store.
func TestWhatIsPassedOn(t *testing.T) {
	plain := &holdfast.Options{}
	many := make([]*holdfast.Options, 2*driver.MaxTokens+1)
	for _, c := range []struct {
		what     string
		config   holdfast.Config
		store    driver.Store
		hold     time.Duration
		options  []*holdfast.Options
		requests int
	}{
		{what: "plain options", options: []*holdfast.Options{plain, plain, plain, plain}, requests: 1},
		{what: "end of the turn", hold: 5 * ms, options: []*holdfast.Options{plain, plain, plain, plain}, requests: 2},
		{what: "end of the tokens", options: many, requests: 3},
		{what: "a store of single tokens", store: singleToken{memstore.New()}, options: []*holdfast.Options{plain, plain, plain}, requests: 3},
		{what: "LocalTurn 1s", config: holdfast.Config{LocalTurn: time.Second}, hold: 5 * ms,
			options: []*holdfast.Options{plain, plain, plain, plain}, requests: 1},
		{what: "LocalTurn off", config: holdfast.Config{LocalTurn: -1}, options: []*holdfast.Options{plain, plain, plain}, requests: 3},
		{what: "another TTL", options: []*holdfast.Options{plain, {TTL: time.Hour}, plain}, requests: 3},
		{what: "the same metadata", requests: 1, options: []*holdfast.Options{
			{Metadata: map[string]string{"k": "v"}}, {Metadata: map[string]string{"k": "v"}}}},
		{what: "other metadata", requests: 2, options: []*holdfast.Options{
			{Metadata: map[string]string{"k": "v"}}, {Metadata: map[string]string{"k": "w"}}}},
		{what: "MaxHold", options: []*holdfast.Options{plain, {MaxHold: time.Second}, plain}, requests: 3},
		{what: "NoRenew", options: []*holdfast.Options{plain, {NoRenew: true}, plain}, requests: 3},
		{what: "Reentrant", options: []*holdfast.Options{plain, {Reentrant: true}, plain}, requests: 3},
		{what: "Detached", options: []*holdfast.Options{plain, {Detached: true}, plain}, requests: 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ context.Context) {
				if c.store == nil {
					c.store = memstore.New()
				}
				store := faultstore.Wrap(c.store)
				client := open(t, store, &c.config)
				holdInTurn(t, client, c.hold, c.options...)
				if requests := store.Calls(faultstore.Acquire) - 1; requests != c.requests {
					t.Errorf("%d requests, want %d", requests, c.requests)
				}
				free(t, client, "a")
			})
		})
	}
}

// A singleToken is a store that grants one token at a time.
type singleToken struct{ *memstore.Store }

func (s singleToken) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Tokens = 0
	return g
}

// A lease whose renewal is due, in flight or failed is not passed on: the next holder would have
// less time than one that was granted the lock.
func TestRenewalEndsALocalTurn(t *testing.T) {
	for _, c := range []struct {
		what  string
		renew faultstore.Fault
		hold  time.Duration
	}{
		{"due", nil, 10*time.Second + ms}, // and answered
		{"in flight", far(5 * time.Second), 10*time.Second + ms},
		{"failed", faultstore.Refuse, 11 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ context.Context) {
				client, store := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
				store.Set(faultstore.Renew, c.renew)
				holdInTurn(t, client, c.hold, nil, nil)
				want := 3
				if c.renew == nil {
					want = 2
				}
				if requests := store.Calls(faultstore.Acquire); requests != want {
					t.Errorf("%d requests for three holds, want %d", requests, want)
				}
			})
		})
	}
}

// inTurn returns a hold that was granted by the store and released, the one that it was passed on to, and
// those of further waiters.
func inTurn(t *testing.T, c *holdfast.Client, waiters int) (before, passed *holdfast.Lock, rest <-chan *holdfast.Lock) {
	t.Helper()
	first := acquire(t, c, "a", nil)
	locks := startWaiters(t, c, "a", 2+waiters)
	release(t, first)
	before = <-locks
	time.Sleep(ms)
	release(t, before)
	return before, <-locks, locks
}

// A lock that was passed on is renewed, lost at its deadline, and shown as what it is.
func TestHoldThatWasPassedOn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		before, lock, _ := inTurn(t, c, 0)
		if lock.Token() != before.Token()+1 || lock.Since() != before.Since().Add(ms) || !lock.Deadline().Equal(before.Deadline()) {
			t.Errorf("%v since %v until %v after %v since %v until %v", lock, lock.Since(), lock.Deadline(), before, before.Since(), before.Deadline())
		}
		if before.Context().Err() == nil || lock.Context().Err() != nil {
			t.Errorf("the contexts: %v, %v", before.Context().Err(), lock.Context().Err())
		}
		var held *holdfast.HeldError
		if _, err := c.TryAcquire(ctx, "a", nil); !errors.As(err, &held) || !held.Self {
			t.Errorf("a try: %v", err)
		}
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Fatalf("after an hour: %v", err)
		}
		store.Set(faultstore.Renew, faultstore.Refuse)
		<-lock.Context().Done()
		wantErr(t, lock.Release(), holdfast.ErrLost, holdfast.ErrExpired)
	})
}

// Nothing is passed on once Close has begun, and the lock is released once.
func TestCloseInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := faultstore.Wrap(memstore.New())
		c := holdfast.New(store, &holdfast.Config{LocalTurn: time.Hour})
		var group sync.WaitGroup
		var closing atomic.Bool
		for range 20 {
			group.Go(func() {
				for {
					lock, err := c.Acquire(ctx, "a", nil)
					if err != nil {
						wantErr(t, err, holdfast.ErrClosed)
						return
					}
					if closing.Load() {
						t.Error("passed on after Close has begun")
					}
					time.Sleep(ms)
					_ = lock.Release()
				}
			})
		}
		time.Sleep(100*ms + ms/2)
		synctest.Wait()
		closing.Store(true)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		free(t, open(t, store, nil), "a")
		group.Wait()
	})
}

// A break ends the hold that the lease has been passed on to, under its own token or that of the
// store, through any Client, and the turn with it. The tokens go on rising.
func TestBreakInALocalTurn(t *testing.T) {
	for _, here := range []bool{true, false} {
		for _, way := range []string{"own token", "token of the store", "any"} {
			virtual(t, func(t *testing.T, ctx context.Context) {
				store := memstore.New()
				c, by := open(t, store, &holdfast.Config{LocalTurn: time.Hour}), open(t, store, nil)
				if here {
					by = c
				}
				_, lock, rest := inTurn(t, c, 1)
				token := map[string]int64{"own token": lock.Token(), "token of the store": lookup(t, c, "a").Token}[way]
				if _, err := by.Break(ctx, "a", token); err != nil {
					t.Errorf("%s: %v", way, err)
				}
				synctest.Wait()
				if here {
					wantErr(t, lock.Err(), holdfast.ErrTaken)
				} else {
					wantErr(t, lock.Err(), holdfast.ErrTaken)
				}
				_ = lock.Release()
				next := <-rest
				if next.Token() <= lock.Token() {
					t.Errorf("%s: token %d after %d", way, next.Token(), lock.Token())
				}
				release(t, next)
			})
		}
	}
}

// ReleaseKeep passes nothing on.
func TestReleaseKeepInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
		_, lock, rest := inTurn(t, c, 1)
		began := time.Now()
		if err := lock.ReleaseKeep(time.Minute); err != nil {
			t.Error(err)
		}
		release(t, <-rest)
		if took := time.Since(began); took < time.Minute {
			t.Errorf("a name kept for a minute was acquired after %v", took)
		}
	})
}

// A lease that was extended beyond its TTL is released: the next hold must end in time if its
// process dies.
func TestExtendedLeaseIsReleased(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
		_, lock, rest := inTurn(t, c, 1)
		if err := lock.Extend(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		release(t, lock)
		next := <-rest
		if rec := lookup(t, c, "a"); rec.Remaining > holdfast.DefaultTTL {
			t.Errorf("the next hold lasts %v", rec.Remaining)
		}
		release(t, next)
	})
}
