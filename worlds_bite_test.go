package holdfast_test

import (
	"context"
	"iter"
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
			prepare := func(w *world) { w.useStore(broken(memstore.New())) }
			for i := range uint64(worlds) {
				if found := runWorld(t, prepare, seed+i); len(found) > 0 {
					t.Logf("found in world %d: %.150s", i+1, found[0])
					return
				}
			}
			t.Errorf("not found in %d worlds from seed %d", worlds, seed)
		})
	}
}

var brokenStores = map[string]func(driver.Notifier) driver.Notifier{
	"half of the TTL":             brokenStore{acquire: func(req *driver.Request) { req.TTL = max(req.TTL/2, driver.MinTTL) }}.on,
	"a hold outlives its TTL":     brokenStore{acquire: func(req *driver.Request) { req.TTL = driver.MaxTTL }}.on,
	"a plain lock tolerates more": brokenStore{acquire: func(req *driver.Request) { req.Limit, req.Tokens = max(req.Limit, 2), 0 }}.on,
	"limits are ignored": brokenStore{acquire: func(req *driver.Request) {
		if req.Limit > 1 {
			req.Limit = driver.Shared
		}
	}}.on,
	"tokens fall": brokenStore{acquired: func(res *driver.Result) error {
		res.Token = driver.MaxToken - res.Token
		return nil
	}}.on,
	"a wait is damage": brokenStore{acquired: func(res *driver.Result) error {
		if res.Waiting {
			return driver.ErrCorrupt
		}
		return nil
	}}.on,
	"a lost hold is renewed": brokenStore{renew: func(req driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Lost && req.Token > 0 {
			*e = driver.Entry{State: driver.Held, Token: req.Token}
		}
	}}.on,
	"a place is a hold": brokenStore{renew: func(_ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Waiting {
			e.State = driver.Held
		}
	}}.on,
	"a place outlives its hold": brokenStore{renew: func(_ driver.RenewRequest, e *driver.Entry) {
		if e.State == driver.Lost {
			e.State = driver.Waiting
		}
	}}.on,
	"a keep is ignored": brokenStore{release: func(req *driver.ReleaseRequest) { req.Keep = 0 }}.on,

	"a late release frees":   func(s driver.Notifier) driver.Notifier { return freesAll{s} },
	"Break ends nothing":     func(s driver.Notifier) driver.Notifier { return breaksNothing{s} },
	"a list shows the past":  func(s driver.Notifier) driver.Notifier { return showsPast{s} },
	"a grant is told to all": func(s driver.Notifier) driver.Notifier { return &tellsAll{Notifier: s} },
}

// A brokenStore changes requests or results of one kind.
type brokenStore struct {
	driver.Notifier
	acquire  func(*driver.Request)
	acquired func(*driver.Result) error
	renew    func(driver.RenewRequest, *driver.Entry)
	release  func(*driver.ReleaseRequest)
}

func (s brokenStore) on(store driver.Notifier) driver.Notifier {
	s.Notifier = store
	return s
}

func (s brokenStore) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if s.acquire != nil {
		s.acquire(&req)
	}
	res, err := s.Notifier.Acquire(ctx, req)
	if s.acquired != nil && err == nil {
		err = s.acquired(&res)
	}
	return res, err
}

func (s brokenStore) Renew(ctx context.Context, rr []driver.RenewRequest) ([]driver.Entry, error) {
	entries, err := s.Notifier.Renew(ctx, rr)
	for i := range entries {
		if s.renew != nil {
			s.renew(rr[i], &entries[i])
		}
	}
	return entries, err
}

func (s brokenStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if s.release != nil {
		s.release(&req)
	}
	return s.Notifier.Release(ctx, req)
}

type freesAll struct{ driver.Notifier }

func (s freesAll) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	found, err := s.Notifier.Release(ctx, req)
	if !found {
		_, _ = s.Break(ctx, req.Name, 0)
	}
	return found, err
}

type breaksNothing struct{ driver.Notifier }

func (s breaksNothing) Break(ctx context.Context, name string, _ int64) ([]driver.Record, error) {
	return s.Lookup(ctx, name)
}

type showsPast struct{ driver.Notifier }

func (s showsPast) List(context.Context, string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) { yield(driver.Record{Name: "a", Holder: "the past"}, nil) }
}

// A tellsAll notifies every owner that has waited.
type tellsAll struct {
	driver.Notifier
	places sync.Map // the tokens of owners
}

func (s *tellsAll) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	res, err := s.Notifier.Acquire(ctx, req)
	if res.Waiting {
		s.places.Store(req.Owner, res.Token)
	}
	return res, err
}

func (s *tellsAll) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.Notifier.Notify(func(name, owner string, token int64) {
		f(name, owner, token)
		s.places.Range(func(other, token any) bool {
			f(name, other.(string), token.(int64))
			return true
		})
	})
}
