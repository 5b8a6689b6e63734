package holdfast_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// TestWorldsFindBrokenStores: each thing that a store may do wrong is found within a few worlds.
func TestWorldsFindBrokenStores(t *testing.T) {
	for name, broken := range brokenStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const worlds = 40
			seed := rand.Uint64() >> 1
			for i := range uint64(worlds) {
				if violations := runWorld(t, func() worldStore { return oneStore{broken(memstore.New())} }, seed+i); len(violations) > 0 {
					t.Logf("found in world %d: %.150s", i+1, violations[0])
					return
				}
			}
			t.Errorf("not found in %d worlds from seed %d", worlds, seed)
		})
	}
}

var brokenStores = map[string]func(driver.Notifier) driver.Notifier{
	"half of the TTL":         onAcquire(func(req *driver.Request, _ *driver.Result) { req.TTL = max(req.TTL/2, driver.MinTTL) }),
	"a hold outlives its TTL": onAcquire(func(req *driver.Request, _ *driver.Result) { req.TTL = driver.MaxTTL }),
	"limits are ignored": onAcquire(func(req *driver.Request, _ *driver.Result) {
		if req.Limit > 1 {
			req.Limit = driver.Shared
		}
	}),
	"a plain lock tolerates another": onAcquire(func(req *driver.Request, _ *driver.Result) {
		req.Limit, req.Tokens = max(req.Limit, 2), 0
	}),
	"tokens fall": onAcquire(func(_ *driver.Request, res *driver.Result) {
		if res.Granted {
			res.Token = driver.MaxToken - res.Token
		}
	}),
	"a lost hold is renewed": onRenew(func(req driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Lost && req.Token > 0 {
			*e = driver.Entry{State: driver.Held, Token: req.Token}
		}
	}),
	"a place is a hold": onRenew(func(_ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Waiting {
			e.State = driver.Held
		}
	}),
	"a place outlives its hold": onRenew(func(_ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Lost {
			e.State = driver.Waiting
		}
	}),
	"a late release frees": onRelease(func(s driver.Notifier, req driver.ReleaseRequest) (bool, error) {
		found, err := s.Release(context.Background(), req)
		if !found {
			_, _ = s.Break(context.Background(), req.Name, 0)
		}
		return found, err
	}),
	"a keep is ignored": onRelease(func(s driver.Notifier, req driver.ReleaseRequest) (bool, error) {
		req.Keep = 0
		return s.Release(context.Background(), req)
	}),
	"Break ends nothing":     func(s driver.Notifier) driver.Notifier { return breaksNothing{s} },
	"a grant is told to all": func(s driver.Notifier) driver.Notifier { return &tellsAll{Notifier: s, places: map[string]int64{}} },
}

// onAcquire breaks Acquire. It is called before the request with an empty result, and after it.
func onAcquire(brk func(*driver.Request, *driver.Result)) func(driver.Notifier) driver.Notifier {
	return func(s driver.Notifier) driver.Notifier { return acquires{s, brk} }
}

type acquires struct {
	driver.Notifier
	brk func(*driver.Request, *driver.Result)
}

func (s acquires) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	s.brk(&req, &driver.Result{})
	res, err := s.Notifier.Acquire(ctx, req)
	s.brk(&req, &res)
	return res, err
}

func onRenew(brk func(driver.RenewRequest, *driver.Entry)) func(driver.Notifier) driver.Notifier {
	return func(s driver.Notifier) driver.Notifier { return renews{s, brk} }
}

type renews struct {
	driver.Notifier
	brk func(driver.RenewRequest, *driver.Entry)
}

func (s renews) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries, err := s.Notifier.Renew(ctx, reqs)
	for i := range entries {
		s.brk(reqs[i], &entries[i])
	}
	return entries, err
}

func onRelease(brk func(driver.Notifier, driver.ReleaseRequest) (bool, error)) func(driver.Notifier) driver.Notifier {
	return func(s driver.Notifier) driver.Notifier { return releases{s, brk} }
}

type releases struct {
	driver.Notifier
	brk func(driver.Notifier, driver.ReleaseRequest) (bool, error)
}

func (s releases) Release(_ context.Context, req driver.ReleaseRequest) (bool, error) {
	return s.brk(s.Notifier, req)
}

type breaksNothing struct{ driver.Notifier }

func (s breaksNothing) Break(ctx context.Context, name string, _ int64) ([]driver.Record, error) {
	return s.Notifier.Lookup(ctx, name)
}

// A tellsAll notifies every owner that has waited.
type tellsAll struct {
	driver.Notifier
	mu     sync.Mutex
	places map[string]int64 // the tokens of owners
}

func (s *tellsAll) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Notifier.Acquire(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if res.Waiting {
		s.places[req.Owner] = res.Token
	}
	return res, err
}

func (s *tellsAll) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.Notifier.Notify(func(name, owner string, token int64) {
		f(name, owner, token)
		s.mu.Lock()
		others := maps.Clone(s.places)
		s.mu.Unlock()
		for other, token := range others {
			f(name, other, token)
		}
	})
}
