package holdfast_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/memstore"
)

// A store that falls back to an earlier state, as after a failover to a replica that lags, may have
// two holders until the deadlines of the moment when it fell back, those of places included, and
// never after. Waiters are served all the same.
func TestStoreThatFallsBack(t *testing.T) {
	for seed := range uint64(200) {
		virtual(t, func(t *testing.T, ctx context.Context) {
			random := rand.New(rand.NewPCG(seed, 1))
			store := newFallbackStore()
			judge := &fallbackJudge{t: t, seed: seed, held: map[*holdfast.Lock]time.Time{}}
			var group sync.WaitGroup
			for i := range 5 {
				c := holdfast.New(store, &holdfast.Config{TTL: fallbackTTL, LocalTurn: 3 * ms})
				for range 2 {
					random := rand.New(rand.NewPCG(seed, uint64(i)+2))
					group.Go(func() {
						for range 25 {
							lock, err := c.Acquire(ctx, "a", nil)
							if err != nil {
								t.Error(err)
								return
							}
							judge.acquired(lock)
							select {
							case <-lock.Context().Done():
							case <-time.After(time.Duration(random.Int64N(int64([]time.Duration{200 * ms, 200 * ms, 200 * ms, 3 * time.Second}[random.IntN(4)])))):
							}
							judge.ended(lock)
							_ = lock.Release() // It may have been lost.
						}
					})
				}
				defer c.Close()
			}
			done := make(chan struct{})
			go func() { group.Wait(); close(done) }()
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(random.Int64N(int64(5 * time.Second)))):
					judge.fallsBack(func() { store.fallBack(time.Duration(random.Int64N(int64(2 * time.Second)))) })
				case <-time.After(time.Hour):
					t.Fatalf("seed %d: the waiters are not served", seed)
				}
			}
		})
	}
}

const fallbackTTL = 3 * time.Second

// A fallbackJudge finds holds that overlap although none of them is older than a fallback.
type fallbackJudge struct {
	t    *testing.T
	seed uint64

	mu   sync.Mutex
	held map[*holdfast.Lock]time.Time // until when an overlap is allowed; zero for not at all
	last int64                        // the greatest token so far

	fellBack time.Time
}

func (j *fallbackJudge) acquired(lock *holdfast.Lock) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	for other, allowed := range j.held {
		if other.Err() == nil && !now.Before(allowed) {
			j.t.Errorf("seed %d: token %d is held beside %d", j.seed, lock.Token(), other.Token())
		}
	}
	j.held[lock] = time.Time{}
	if lock.Deadline().Add(-fallbackTTL).Before(j.fellBack) {
		j.held[lock] = lock.Deadline() // The store has forgotten the request that confirmed it last.
	}
	j.last = max(j.last, lock.Token())
}

func (j *fallbackJudge) ended(lock *holdfast.Lock) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if lock.Err() == nil && lock.Token() < j.last && !time.Now().Before(j.held[lock]) {
		j.t.Errorf("seed %d: token %d is still held after %d", j.seed, lock.Token(), j.last)
	}
	delete(j.held, lock)
}

func (j *fallbackJudge) fallsBack(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	j.fellBack = time.Now()
	for lock := range j.held {
		j.held[lock] = lock.Deadline()
	}
}

// A fallbackStore is a store of one name that can return to an earlier state.
type fallbackStore struct {
	driver.Store // for its guarantees
	began        time.Time

	mu        sync.Mutex
	queue     lockqueue.Queue[struct{}]
	counter   lockqueue.Counter
	earlier   []fallbackState
	listeners []func(driver.Notice)
}

type fallbackState struct {
	at      time.Duration
	entries []lockqueue.Entry[struct{}]
}

func restored(entries []lockqueue.Entry[struct{}]) (q lockqueue.Queue[struct{}]) {
	for _, e := range entries {
		q.Append(&e)
	}
	return q
}

func newFallbackStore() *fallbackStore {
	return &fallbackStore{Store: memstore.New(), began: time.Now()}
}

// fallBack returns to the state of some time ago. Tokens do not fall: the clock has gone on.
func (s *fallbackStore) fallBack(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.began)
	for _, state := range slices.Backward(s.earlier) {
		if state.at <= now-by {
			s.queue = restored(state.entries)
			return
		}
	}
	s.queue = restored(nil)
}

// change runs f and sends the notices that it returns.
func (s *fallbackStore) change(f func(now time.Duration, c *lockqueue.Counter) []lockqueue.Entry[struct{}]) {
	s.mu.Lock()
	now := time.Since(s.began)
	s.counter.Clock = max(time.Now().UnixMicro(), s.counter.Clock)
	notices := f(now, &s.counter)
	state := fallbackState{at: now}
	for e := range s.queue.All() {
		state.entries = append(state.entries, *e)
	}
	s.earlier = append(s.earlier, state)
	listeners := s.listeners
	s.mu.Unlock()
	for _, e := range notices {
		n := driver.Notice{Kind: driver.Granted, Name: "a", Owner: e.Owner, Token: e.Token, Tokens: int(e.Tokens)}
		if e.Token == 0 {
			n.Kind = driver.Ask
		}
		for _, listener := range listeners {
			listener(n)
		}
	}
}

func (s *fallbackStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Scope = driver.ScopeNetwork
	return g
}

func (s *fallbackStore) Acquire(_ context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	s.change(func(now time.Duration, c *lockqueue.Counter) []lockqueue.Entry[struct{}] {
		entry := lockqueue.Entry[struct{}]{Owner: req.Owner, Tokens: int32(req.Tokens)}
		own, notices, failure := s.queue.Acquire(lockqueue.Request[struct{}]{
			Entry: entry, TTL: req.TTL, Queue: req.Queue, Claim: req.Claim,
		}, now, c)
		switch err = failure; {
		case own != nil && own.Token != 0:
			res = driver.AcquireResult{Granted: true, Token: own.Token, Tokens: int(own.Tokens)}
		case own != nil:
			res.Queued, res.First = true, own == s.queue.First()
			fallthrough
		case s.queue.Oldest() != nil:
			oldest := s.queue.Oldest()
			res.Held = driver.Record{Holder: "other", Token: oldest.Token, Remaining: oldest.Until - now}
		}
		return notices
	})
	return res, err
}

func (s *fallbackStore) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		s.change(func(now time.Duration, c *lockqueue.Counter) []lockqueue.Entry[struct{}] {
			own, notices := s.queue.Renew(req.Owner, req.Token, req.TTL, now, c)
			switch {
			case own == nil:
				outcomes[i] = driver.RenewLost
			case own.Token == 0:
				outcomes[i] = driver.RenewQueued
			default:
				outcomes[i] = driver.Renewed
			}
			return notices
		})
	}
	return outcomes, nil
}

func (s *fallbackStore) Release(_ context.Context, req driver.ReleaseRequest) (found bool, err error) {
	s.change(func(now time.Duration, c *lockqueue.Counter) (notices []lockqueue.Entry[struct{}]) {
		found, notices = s.queue.Release(req.Owner, req.Keep, now, c)
		return notices
	})
	return found, nil
}

func (s *fallbackStore) Notify(f func(driver.Notice)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, f)
	return func() {}
}

// A hold whose owner has only a place in the earlier state is lost with its next renewal: a renewal
// names the token of the hold.
func TestHoldThatIsAPlaceAgain(t *testing.T) {
	virtual(t, func(t *testing.T, ctx context.Context) {
		store := newFallbackStore()
		a, b := open(t, store, nil), open(t, store, nil)
		first := acquire(t, a, "a", nil)
		got := make(chan *holdfast.Lock, 1)
		go func() { got <- acquire(t, b, "a", nil) }()
		time.Sleep(100 * ms)
		release(t, first)
		lock := <-got
		time.Sleep(100 * ms)
		store.fallBack(150 * ms)
		<-lock.Context().Done()
		wantErr(t, context.Cause(lock.Context()), holdfast.ErrLost, holdfast.ErrTaken)
		_ = lock.Release()
	})
}
