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
// here: their Client leaves a lock free for a moment that it has passed on.
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

// holdInTurn lets goroutines hold a lock one after the other, each for some time, and returns how
// many requests that took. The first holds it until all others wait.
func holdInTurn(t *testing.T, c *holdfast.Client, store *faultstore.Store, hold time.Duration, options ...*holdfast.Options) int {
	t.Helper()
	// The hold behind the first one is granted by the store, with tokens for the others.
	first := acquire(t, c, "a", nil)
	var group sync.WaitGroup
	log := tokenLog{t: t}
	for _, o := range options {
		group.Go(func() {
			lock := acquire(t, c, "a", o)
			if store.Guarantees().Fencing {
				log.begin(lock.Token())
			}
			time.Sleep(hold)
			log.end()
			release(t, lock)
		})
		synctest.Wait()
	}
	before := store.Calls(faultstore.Acquire)
	release(t, first)
	group.Wait()
	return store.Calls(faultstore.Acquire) - before
}

// Only holds with the same plain options are passed on, within the turn.
func TestWhatIsPassedOn(t *testing.T) {
	plain := &holdfast.Options{}
	for _, c := range []struct {
		what     string
		config   holdfast.Config
		hold     time.Duration
		options  []*holdfast.Options
		requests int
	}{
		{what: "plain options", options: []*holdfast.Options{plain, plain, plain, plain}, requests: 1},
		{what: "end of the turn", hold: 5 * ms, options: []*holdfast.Options{plain, plain, plain, plain}, requests: 2},
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
				client, store := faulty(t, &c.config)
				if requests := holdInTurn(t, client, store, c.hold, c.options...); requests != c.requests {
					t.Errorf("%d requests, want %d", requests, c.requests)
				}
				free(t, client, "a")
			})
		})
	}
}

// A store that gives one token at a time is asked for each hold; one that gives none is not.
func TestLocalTurnNeedsTokens(t *testing.T) {
	plain := []*holdfast.Options{{}, {}, {}}
	virtual(t, func(t *testing.T, _ context.Context) {
		store := faultstore.Wrap(singleToken{memstore.New()})
		if requests := holdInTurn(t, open(t, store, nil), store, 0, plain...); requests != 3 {
			t.Errorf("single tokens: %d requests for 3 holds", requests)
		}
		store = faultstore.Wrap(&tokenless{Store: memstore.New()})
		if requests := holdInTurn(t, open(t, store, nil), store, 0, plain...); requests != 0 {
			t.Errorf("no tokens: %d requests for 3 holds", requests)
		}
	})
}

// A break or a loss that comes while a lock is being released is a break of the lease: it is not
// passed on.
func TestLossDuringARelease(t *testing.T) {
	for _, way := range []string{"break", "loss"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			store := &alarmingStore{Store: memstore.New()}
			c, other := open(t, store, nil), open(t, store.Store, nil)
			first := acquire(t, c, "a", nil)
			locks := startWaiters(t, c, "a", 2)
			release(t, first)
			rest := holdfast.ReleaseInSteps(<-locks)
			if way == "break" {
				if _, err := c.Break(ctx, "a"); err != nil {
					t.Error(err)
				}
			} else {
				if _, err := other.Break(ctx, "a"); err != nil {
					t.Error(err)
				}
				store.alarm("a", store.owner)
				synctest.Wait()
			}
			taken, err := other.TryAcquire(ctx, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = rest()
			synctest.Wait()
			if len(locks) > 0 {
				t.Errorf("%s: the lease was passed on", way)
			}
			release(t, taken)
			release(t, <-locks)
		})
	}
}

type singleToken struct{ *memstore.Store }

func (s singleToken) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	req.Tokens = 0
	return s.Store.Acquire(ctx, req)
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
		{"in flight", within(5 * time.Second), 10*time.Second + ms},
		{"failed", faultstore.Refuse, 11 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ context.Context) {
				client, store := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
				store.Set(faultstore.Renew, c.renew)
				want := 2
				if c.renew == nil {
					want = 1
				}
				if requests := holdInTurn(t, client, store, c.hold, nil, nil); requests != want {
					t.Errorf("%d requests for two holds, want %d", requests, want)
				}
			})
		})
	}
}

// A lock that was passed on is renewed, lost at its deadline, and shown as what it is.
func TestHoldThatWasPassedOn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, store := faulty(t, nil)
		var before, lock *holdfast.Lock
		first := acquire(t, c, "a", nil)
		passed := make(chan struct{})
		go func() { before = acquire(t, c, "a", nil); time.Sleep(ms); release(t, before) }()
		synctest.Wait()
		go func() { lock = acquire(t, c, "a", nil); close(passed) }()
		synctest.Wait()
		release(t, first)
		<-passed
		if lock.Token() != before.Token()+1 || lock.Since() != before.Since().Add(ms) || !lock.Deadline().Equal(before.Deadline()) {
			t.Errorf("%v since %v until %v after %v since %v until %v", lock, lock.Since(), lock.Deadline(), before, before.Since(), before.Deadline())
		}
		if before.Context().Err() == nil || lock.Context().Err() != nil {
			t.Errorf("the contexts: %v, %v", before.Context().Err(), lock.Context().Err())
		}
		var held *holdfast.HeldError
		if _, err := c.TryAcquire(ctx, "a", nil); !errors.As(err, &held) || held.Record.Token != lock.Token() || !held.Self {
			t.Errorf("a try: %v, want held under token %d", err, lock.Token())
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
		grants, releases := store.Calls(faultstore.Acquire), store.Calls(faultstore.Release)
		if grants != releases {
			t.Errorf("%d acquisitions and %d releases", grants, releases)
		}
	})
}

// A break ends the hold that the lease has been passed on to, under its own token or that of the
// store, and the turn with it.
func TestBreakInALocalTurn(t *testing.T) {
	for _, way := range []string{"own token", "token of the store", "any"} {
		virtual(t, func(t *testing.T, ctx context.Context) {
			c, _ := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
			first := acquire(t, c, "a", nil)
			locks := startWaiters(t, c, "a", 3)
			release(t, first)
			release(t, <-locks)
			lock := <-locks // passed on
			rec, err := c.Lookup(ctx, "a")
			if err != nil || rec.Token != lock.Token()-1 {
				t.Fatalf("%+v, %v, want the token before %d", rec, err, lock.Token())
			}
			switch way {
			case "own token":
				_, err = c.BreakToken(ctx, "a", lock.Token())
			case "token of the store":
				_, err = c.BreakToken(ctx, "a", rec.Token)
			default:
				_, err = c.Break(ctx, "a")
			}
			if err != nil {
				t.Errorf("%s: %v", way, err)
			}
			wantErr(t, lock.Err(), holdfast.ErrBroken)
			_ = lock.Release()
			next := <-locks
			if next.Token() < lock.Token()+driver.MaxTokens-1 {
				t.Errorf("%s: token %d after %d", way, next.Token(), lock.Token())
			}
			release(t, next)
		})
	}
}

// BreakToken with the token of a hold that is over does not end the hold to which its lease was
// passed on, through any Client.
func TestBreakOfAFormerHoldInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := memstore.New()
		c, other := open(t, store, &holdfast.Config{LocalTurn: time.Hour}), open(t, store, nil)
		first := acquire(t, c, "a", nil)
		locks := startWaiters(t, c, "a", 3)
		release(t, first)
		release(t, <-locks)
		former := <-locks
		release(t, former)
		lock := <-locks // passed on
		for _, client := range []*holdfast.Client{c, other} {
			_, err := client.BreakToken(ctx, "a", former.Token())
			wantErr(t, err, holdfast.ErrNotHeld)
		}
		synctest.Wait()
		if err := lock.Err(); err != nil {
			t.Errorf("the present hold: %v", err)
		}
		release(t, lock)
	})
}

// A loss that the store reports ends the present hold of the lease.
func TestLossInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := &alarmingStore{Store: memstore.New()}
		c := open(t, store, nil)
		first := acquire(t, c, "a", nil)
		locks := startWaiters(t, c, "a", 2)
		release(t, first)
		release(t, <-locks)
		lock := <-locks
		store.alarm("a", store.owner)
		synctest.Wait()
		wantErr(t, lock.Err(), holdfast.ErrTaken)
		_ = lock.Release()
	})
}

type alarmingStore struct {
	*memstore.Store
	owner  string // of the last grant
	notify func(driver.Notice)
}

func (s *alarmingStore) alarm(name, owner string) {
	s.notify(driver.Notice{Kind: driver.Lost, Name: name, Owner: owner})
}

func (s *alarmingStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	s.owner = req.Owner
	return s.Store.Acquire(ctx, req)
}

func (s *alarmingStore) Notify(f func(driver.Notice)) (stop func()) {
	s.notify = f
	return s.Store.Notify(f)
}

// ReleaseKeep passes nothing on.
func TestReleaseKeepInALocalTurn(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		c, _ := faulty(t, &holdfast.Config{LocalTurn: time.Hour})
		first := acquire(t, c, "a", nil)
		locks := startWaiters(t, c, "a", 2)
		release(t, first)
		began := time.Now()
		if err := (<-locks).ReleaseKeep(time.Minute); err != nil {
			t.Error(err)
		}
		release(t, <-locks)
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
		first := acquire(t, c, "a", nil)
		locks := startWaiters(t, c, "a", 2)
		release(t, first)
		second := <-locks
		if err := second.Extend(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		release(t, second)
		lock := <-locks
		if rec, err := c.Lookup(ctx, "a"); err != nil || rec.Remaining > holdfast.DefaultTTL {
			t.Errorf("the next hold lasts %v, %v", rec.Remaining, err)
		}
		release(t, lock)
	})
}
