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
	for name, brk := range brokenStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const worlds = 40
			seed := rand.Uint64() >> 1
			open := func() worldStore {
				s := &brokenStore{Notifier: memstore.New(), places: map[string]int64{}}
				brk(s)
				return oneStore{s}
			}
			for i := range uint64(worlds) {
				if violations := runWorld(t, open, seed+i); len(violations) > 0 {
					t.Logf("found in world %d: %.150s", i+1, violations[0])
					return
				}
			}
			t.Errorf("not found in %d worlds from seed %d", worlds, seed)
		})
	}
}

// A brokenStore is a store with one fault. A nil function changes nothing.
type brokenStore struct {
	driver.Notifier
	request func(*driver.Request)
	result  func(driver.Request, *driver.Result)
	renewed func(driver.RenewRequest, *driver.Entry)
	release func(driver.ReleaseRequest) (bool, error)
	lies    bool              // Break ends nothing
	token   func(int64) int64 // how a token is shown, and back
	notices func(name, owner string, token int64, f func(name, owner string, token int64))

	mu     sync.Mutex
	places map[string]int64 // the tokens of owners that wait
}

var brokenStores = map[string]func(*brokenStore){
	"half of the TTL": func(s *brokenStore) {
		s.request = func(req *driver.Request) { req.TTL = max(req.TTL/2, driver.MinTTL) }
	},
	"a lost hold is renewed": func(s *brokenStore) {
		s.renewed = func(req driver.RenewRequest, e *driver.Entry) {
			if e.State == driver.Lost && req.Token > 0 {
				*e = driver.Entry{State: driver.Held, Token: req.Token}
			}
		}
	},
	"a place is a hold": func(s *brokenStore) {
		s.renewed = func(_ driver.RenewRequest, e *driver.Entry) {
			if e.State == driver.Waiting {
				e.State = driver.Held
			}
		}
	},
	"places are forgotten": func(s *brokenStore) {
		s.renewed = func(req driver.RenewRequest, e *driver.Entry) {
			s.mu.Lock()
			defer s.mu.Unlock()
			token, ok := s.places[req.Owner]
			if e.State == driver.Waiting || e.State == driver.Lost && ok {
				s.places[req.Owner] = max(token, e.Token)
				_, _ = s.Notifier.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
				*e = driver.Entry{State: driver.Waiting, Token: s.places[req.Owner]}
			}
		}
	},
	"limits are ignored": func(s *brokenStore) {
		s.request = func(req *driver.Request) {
			if req.Limit > 1 {
				req.Limit = driver.Shared
			}
		}
	},
	"a plain lock tolerates another": func(s *brokenStore) {
		s.request = func(req *driver.Request) { req.Limit, req.Tokens = max(req.Limit, 2), 0 }
	},
	"a late release frees": func(s *brokenStore) {
		s.release = func(req driver.ReleaseRequest) (bool, error) {
			found, err := s.Notifier.Release(context.Background(), req)
			if !found {
				_, _ = s.Notifier.Break(context.Background(), req.Name, 0)
			}
			return found, err
		}
	},
	"a keep is ignored": func(s *brokenStore) {
		s.release = func(req driver.ReleaseRequest) (bool, error) {
			req.Keep = 0
			return s.Notifier.Release(context.Background(), req)
		}
	},
	"tokens fall": func(s *brokenStore) {
		s.token = func(token int64) int64 {
			if token == 0 {
				return 0
			}
			return driver.MaxToken - token
		}
	},
	"Break ends nothing": func(s *brokenStore) { s.lies = true },
	"a grant is told to two": func(s *brokenStore) {
		s.result = func(req driver.Request, res *driver.Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if res.Waiting {
				s.places[req.Owner] = res.Token
			}
		}
		s.notices = func(name, owner string, token int64, f func(name, owner string, token int64)) {
			f(name, owner, token)
			s.mu.Lock()
			others := maps.Clone(s.places)
			s.mu.Unlock()
			for other, token := range others {
				f(name, other, token)
			}
		}
	},
}

func (s *brokenStore) shown(token int64) int64 {
	if s.token != nil {
		return s.token(token)
	}
	return token
}

func (s *brokenStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if s.request != nil {
		s.request(&req)
	}
	res, err := s.Notifier.Acquire(ctx, req)
	if s.result != nil {
		s.result(req, &res)
	}
	res.Token = s.shown(res.Token)
	return res, err
}

func (s *brokenStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(reqs))
	for i, req := range reqs {
		req.Token = s.shown(req.Token)
		one, err := s.Notifier.Renew(ctx, []driver.RenewRequest{req})
		if err != nil {
			return nil, err
		}
		if entries[i] = one[0]; s.renewed != nil {
			s.renewed(req, &entries[i])
		}
		entries[i].Token = s.shown(entries[i].Token)
	}
	return entries, nil
}

func (s *brokenStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if s.release != nil {
		return s.release(req)
	}
	return s.Notifier.Release(ctx, req)
}

func (s *brokenStore) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	if s.lies {
		return s.Notifier.Lookup(ctx, name)
	}
	return s.Notifier.Break(ctx, name, s.shown(token))
}

func (s *brokenStore) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.Notifier.Notify(func(name, owner string, token int64) {
		if s.notices != nil {
			s.notices(name, owner, token, f)
		} else {
			f(name, owner, s.shown(token))
		}
	})
}
