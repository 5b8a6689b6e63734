package drivertest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A sharedModel is a place for locks that several can hold: stores of package memstore, which it
// breaks in one way. If it is not fair, it has no places, and an owner that waits keeps others out.
type sharedModel struct {
	bug  bug
	fair bool
	name string // of the memory store

	mu      sync.Mutex
	waiting map[string]waitingOwner // by name
	granted map[string]string       // the names of shared and limited holds, by owner
}

// A waitingOwner keeps others out until a time.
type waitingOwner struct {
	owner string
	until time.Time
}

// A sharedStore is a store over a sharedModel.
type sharedStore struct {
	*memstore.Store
	m *sharedModel
}

// A sharedVariant is a broken store and the cases of the theme "shared" that fail because of it.
type sharedVariant struct {
	variant
	unfair bool
}

var sharedVariants = []sharedVariant{
	{variant: variant{bug: "others are not shown", fails: `shared/lookup`}},
	{variant: variant{bug: "limits are not shown", fails: `shared/lookup`}},
	{variant: variant{bug: "break ends oldest", fails: `shared/break`}},
	{variant: variant{bug: "break token ends all", fails: `shared/break`}},
	{unfair: true, variant: variant{bug: "waits last forever", fails: `shared/waiter-ends`}},
	{unfair: true, variant: variant{bug: "released wait goes on", fails: `shared/waiter-ends`}},
	{variant: variant{bug: "readers queue as writers", fails: `shared/admitted-together`}},
	{variant: variant{bug: "readers count", fails: `shared/beside-shared`}},
	{variant: variant{bug: "shares leak", fails: `shared/expired-shares`}},
	{variant: variant{bug: "great overtakes small", fails: `shared/small-limit`}},
	{variant: variant{bug: "renews all of name", fails: `shared/expired-shares shared/own-lease`}},
	{variant: variant{bug: "kept reader is exclusive", fails: `shared/keep shared/kept-share`}},
	{variant: variant{bug: "kept share is freed", fails: `shared/keep shared/kept-share`}},
	{variant: variant{bug: "readers overtake", fails: `shared/no-overtaking shared/waiter-ends`}},
	{unfair: true, variant: variant{bug: "readers overtake", fails: `shared/no-overtaking shared/waiter-ends`}},
	{variant: variant{bug: "checks sum then takes", fails: `shared/small-limit shared/sum`}},
	{variant: variant{bug: "readers join writer", fails: `shared/admitted-together shared/exclusive shared/no-overtaking`}},
	{variant: variant{bug: "readers have one token", fails: `shared/break shared/limit shared/lookup shared/together`}},
	{variant: variant{bug: "limit is one less", fails: `
		shared/beside-shared shared/expired-shares shared/kept-share shared/limit
	`}},
	{variant: variant{bug: "first limit counts", fails: `
		shared/expired-shares shared/kept-share shared/limit shared/small-limit
	`}},
	{variant: variant{bug: "limit is one more", fails: `shared/beside-shared shared/limit shared/small-limit shared/sum`}},
	{variant: variant{bug: "exclusive joins readers", fails: `
		shared/exclusion shared/exclusive shared/keep shared/own-lease
	`}},
	{variant: variant{bug: "shared is exclusive", fails: `
		shared/admitted-together shared/exclusive shared/own-lease shared/together
	`}},
	{variant: variant{bug: "releases all of name", fails: `shared/exclusion shared/exclusive shared/sum shared/together`}},
	{variant: variant{bug: "shared is unsupported", fails: `
		shared/admitted-together shared/exclusion shared/sum shared/together
	`}},
}

// sharedModels counts the models.
var sharedModels atomic.Int64

func newSharedModel(b bug, fair bool) *sharedModel {
	m := &sharedModel{bug: b, fair: fair, waiting: map[string]waitingOwner{}, granted: map[string]string{}}
	m.name = fmt.Sprint("drivertest ", sharedModels.Add(1))
	return m
}

func (m *sharedModel) has(b bug) bool { return m.bug == b }

func (m *sharedModel) backing(tb testing.TB) Backing {
	first := memstore.Named(m.name) // keeps the locks while no other store is open
	tb.Cleanup(func() { _ = first.Close() })
	return Backing{
		Open: func(testing.TB) driver.Store { return &sharedStore{memstore.Named(m.name), m} },
	}
}

func (s *sharedStore) Guarantees() driver.Guarantees {
	g := s.Store.Guarantees()
	g.Scope, g.HolderCrash, g.Fair = driver.ScopeNetwork, driver.RecoveryTTL, s.m.fair
	return g
}

func (s *sharedStore) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if req.Limit != 0 && m.has("shared is unsupported") || req.Claim && !m.fair {
		return res, driver.ErrUnsupported
	}
	asked := req
	rec, held, err := s.Store.Lookup(ctx, req.Name)
	if err != nil {
		return res, err
	}
	holds := append([]driver.Record{rec}, rec.Others...)
	used, readers := 0, 0
	for _, hold := range holds {
		switch {
		case hold.Limit == driver.Shared:
			readers++
		case hold.Limit > 0:
			used++
		}
	}
	overtakes := held && rec.Limit != 0 && rec.Waiting > 0 && !req.Claim && m.fair && m.granted[req.Owner] != req.Name &&
		(m.has("readers overtake") && req.Limit == driver.Shared || m.has("great overtakes small") && req.Limit > used)
	switch {
	case req.Limit == driver.Shared && (m.has("shared is exclusive") || m.has("readers queue as writers") && req.Queue > 0):
		req.Limit = 0
	case req.Limit == 0 && held && rec.Limit == driver.Shared && m.has("exclusive joins readers"):
		req.Limit = driver.Shared
	case req.Limit == driver.Shared && held && rec.Limit == 0 && m.has("readers join writer"), overtakes:
		return driver.AcquireResult{Granted: true, Token: rec.Token + 1}, nil
	case req.Limit > 0 && m.has("limit is one more"):
		req.Limit++
	case req.Limit > 1 && m.has("limit is one less"):
		req.Limit--
	case req.Limit > 0 && rec.Limit > 0 && m.has("first limit counts"):
		req.Limit = rec.Limit
	case req.Limit > readers && m.has("readers count"):
		req.Limit -= readers
	case req.Limit > 0 && m.has("shares leak"):
		req.TTL = max(req.TTL, long)
	case req.Limit > 0 && m.has("checks sum then takes") && held && rec.Limit != 0 && m.granted[req.Owner] == "":
		if used >= req.Limit {
			return driver.AcquireResult{Held: rec}, nil
		}
		m.mu.Unlock()
		time.Sleep(time.Microsecond)
		m.mu.Lock()
		req.Limit = driver.MaxLimit
	}
	wait := m.waiting[req.Name]
	if !m.fair {
		req.Queue = 0
	}
	if !m.fair && wait.owner != asked.Owner && time.Now().Before(wait.until) && m.granted[req.Owner] != req.Name && !req.Claim && !m.has("readers overtake") {
		if rec.Others = nil; !held {
			rec = driver.Record{Name: req.Name, Remaining: time.Until(wait.until)}
		}
		return driver.AcquireResult{Queued: asked.Queue > 0, Held: rec}, nil
	}
	if res, err = s.Store.Acquire(ctx, req); err != nil {
		return res, err
	}
	res.Queued = res.Queued || !m.fair && !res.Granted && asked.Queue > 0
	switch {
	case res.Granted && asked.Limit != 0:
		m.granted[req.Owner] = req.Name
		if m.has("readers have one token") && held && rec.Limit != 0 {
			res.Token = rec.Token
		}
	case !m.fair && res.Queued && held && rec.Limit != 0 && !req.Claim:
		wait = waitingOwner{asked.Owner, time.Now().Add(asked.Queue)}
		if m.has("waits last forever") {
			wait.until = wait.until.Add(long)
		}
		m.waiting[req.Name] = wait
	}
	if res.Granted && wait.owner == asked.Owner {
		delete(m.waiting, req.Name)
	}
	return res, nil
}

func (s *sharedStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	outcomes, err := s.Store.Renew(ctx, reqs)
	for _, req := range reqs {
		for owner, share := range m.granted {
			if m.has("renews all of name") && share == req.Name {
				_, _ = s.Store.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: owner, TTL: req.TTL}})
			}
		}
	}
	return outcomes, err
}

func (s *sharedStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[req.Name].owner == req.Owner && !m.has("released wait goes on") {
		delete(m.waiting, req.Name)
	}
	share := m.granted[req.Owner]
	for owner, other := range m.granted {
		if m.has("releases all of name") && share == req.Name && owner != req.Owner && other == req.Name {
			_, _ = s.Store.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: owner})
		}
	}
	keep := req.Keep
	if share == req.Name && (m.has("kept reader is exclusive") || m.has("kept share is freed")) {
		req.Keep = 0
	}
	delete(m.granted, req.Owner)
	released, err := s.Store.Release(ctx, req)
	if keep > req.Keep && m.has("kept reader is exclusive") && released {
		_, _ = s.Store.Acquire(ctx, driver.AcquireRequest{Name: req.Name, Owner: "the keep", Holder: "keep", TTL: keep})
	}
	return released, err
}

func (s *sharedStore) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	rec, held, err := s.Store.Lookup(ctx, name)
	return s.shown(rec), held, err
}

func (s *sharedStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for rec, err := range s.Store.List(ctx, prefix) {
			if !yield(s.shown(rec), err) {
				return
			}
		}
	}
}

func (s *sharedStore) shown(rec driver.Record) driver.Record {
	switch {
	case s.m.has("others are not shown"):
		rec.Others = nil
	case s.m.has("limits are not shown"):
		rec.Limit, rec.Others = 0, slices.Clone(rec.Others)
		for i := range rec.Others {
			rec.Others[i].Limit = 0
		}
	}
	return rec
}

func (s *sharedStore) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	switch rec, held, _ := s.Store.Lookup(ctx, req.Name); {
	case req.Token == 0 && s.m.has("break ends oldest"):
		req.Token = rec.Token
	case held && s.m.has("break token ends all"):
		req.Token = 0
	}
	return s.Store.Break(ctx, req)
}

// The reference store of shared holds passes the whole suite, and one that is not fair, which sends
// no notices, the theme "shared".
func TestSharedReference(t *testing.T) {
	Run(t, newSharedHarness("", false))
	h := newSharedHarness("", true)
	backing := h.New(t)
	have := available(t.Context(), backing.Open(t), backing)
	for _, c := range sharedCases {
		if have.contains(c.requires) && c.without&have == 0 {
			synctest.Test(t, func(t *testing.T) { c.execute(t, h, have) })
		}
	}
}

// TestSharedBite is TestBite for the theme "shared".
func TestSharedBite(t *testing.T) {
	for _, v := range sharedVariants {
		t.Run(fmt.Sprint(v.bug, " unfair=", v.unfair), func(t *testing.T) {
			for _, name := range strings.Fields(v.fails) {
				expectFailure(t, name, newSharedHarness(v.bug, v.unfair))
			}
		})
	}
}

func newSharedHarness(b bug, unfair bool) Harness {
	return Harness{Virtual: true, New: func(tb testing.TB) Backing { return newSharedModel(b, !unfair).backing(tb) }}
}
