package drivertest

import (
	"context"
	"fmt"
	"iter"
	"slices"
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
	granted map[string]grantedShare // by owner
}

// A waitingOwner keeps others out until a time.
type waitingOwner struct {
	owner string
	until time.Time
}

// A grantedShare is a shared or limited hold.
type grantedShare struct {
	store *sharedStore
	name  string
}

// A sharedStore is a store over a sharedModel.
type sharedStore struct {
	*memstore.Store
	m *sharedModel
}

const (
	sharedIsUnsupported     bug = "shared is unsupported"
	sharedIsExclusive       bug = "shared is exclusive"
	exclusiveJoinsReaders   bug = "exclusive joins readers"
	readersJoinWriter       bug = "readers join writer"
	readersHaveOneToken     bug = "readers have one token"
	renewsAllOfName         bug = "renews all of name"
	releasesAllOfName       bug = "releases all of name"
	repetitionIsSecondShare bug = "repetition is second share"
	othersAreNotShown       bug = "others are not shown"
	limitsAreNotShown       bug = "limits are not shown"
	breakEndsOldest         bug = "break ends oldest"
	breakTokenEndsAll       bug = "break token ends all"
	keptReaderIsExclusive   bug = "kept reader is exclusive"
	keptShareIsFreed        bug = "kept share is freed"
	readersOvertake         bug = "readers overtake"
	waitsLastForever        bug = "waits last forever"
	releasedWaitGoesOn      bug = "released wait goes on"
	readersQueueAsWriters   bug = "readers queue as writers"
	limitIsOneMore          bug = "limit is one more"
	limitIsOneLess          bug = "limit is one less"
	firstLimitCounts        bug = "first limit counts"
	readersCount            bug = "readers count"
	sharesLeak              bug = "shares leak"
	greatOvertakesSmall     bug = "great overtakes small"
	checksSumThenTakes      bug = "checks sum then takes"
	sharesOfDeadStay        bug = "shares of dead stay"
)

// A sharedVariant is a broken store and the cases of the theme "shared" that fail because of it.
type sharedVariant struct {
	variant
	unfair bool
}

var sharedVariants = []sharedVariant{
	{variant: variant{bug: sharedIsUnsupported, fails: `
		shared/together shared/exclusive shared/own-lease shared/repetition shared/lookup shared/break
		shared/keep shared/no-overtaking shared/waiter-ends shared/admitted-together shared/exclusion
		shared/limit shared/beside-shared shared/expired-shares shared/kept-share
		shared/small-limit shared/sum shared/crash
	`}},
	{variant: variant{bug: sharedIsExclusive, fails: `
		shared/together shared/exclusive shared/own-lease shared/repetition shared/lookup shared/break
		shared/keep shared/waiter-ends shared/admitted-together shared/beside-shared
	`}},
	{variant: variant{bug: exclusiveJoinsReaders, fails: `
		shared/exclusive shared/own-lease shared/keep shared/no-overtaking shared/waiter-ends
		shared/beside-shared
	`, may: `shared/exclusion`}},
	{variant: variant{bug: readersJoinWriter, fails: `shared/exclusive shared/no-overtaking shared/admitted-together`, may: `shared/exclusion`}},
	{variant: variant{bug: readersHaveOneToken, fails: `shared/together shared/lookup shared/break shared/limit`}},
	{variant: variant{bug: renewsAllOfName, fails: `shared/own-lease shared/expired-shares`}},
	{variant: variant{bug: releasesAllOfName, fails: `
		shared/together shared/exclusive shared/own-lease shared/repetition shared/lookup shared/waiter-ends
		shared/exclusion shared/limit shared/beside-shared shared/expired-shares shared/kept-share
		 shared/small-limit shared/sum
	`}},
	{variant: variant{bug: repetitionIsSecondShare, fails: `shared/repetition`}},
	{variant: variant{bug: othersAreNotShown, fails: `shared/lookup`}},
	{variant: variant{bug: limitsAreNotShown, fails: `shared/lookup`}},
	{variant: variant{bug: breakEndsOldest, fails: `shared/break`}},
	{variant: variant{bug: breakTokenEndsAll, fails: `shared/break`}},
	{variant: variant{bug: keptReaderIsExclusive, fails: `shared/keep shared/kept-share`}},
	{variant: variant{bug: keptShareIsFreed, fails: `shared/keep shared/kept-share`}},
	{variant: variant{bug: readersOvertake, fails: `shared/no-overtaking shared/waiter-ends`}},
	{unfair: true, variant: variant{bug: readersOvertake, fails: `shared/no-overtaking shared/waiter-ends`}},
	{unfair: true, variant: variant{bug: waitsLastForever, fails: `shared/waiter-ends`}},
	{unfair: true, variant: variant{bug: releasedWaitGoesOn, fails: `shared/waiter-ends`}},
	{variant: variant{bug: readersQueueAsWriters, fails: `shared/admitted-together`}},
	{variant: variant{bug: limitIsOneMore, fails: `
		shared/limit shared/beside-shared shared/expired-shares shared/kept-share
		shared/small-limit shared/sum
	`}},
	{variant: variant{bug: limitIsOneLess, fails: `
		shared/limit shared/beside-shared shared/expired-shares shared/kept-share
		 shared/crash
	`}},
	{variant: variant{bug: firstLimitCounts, fails: `shared/limit shared/expired-shares shared/kept-share shared/small-limit`}},
	{variant: variant{bug: readersCount, fails: `shared/beside-shared`}},
	{variant: variant{bug: sharesLeak, fails: `shared/expired-shares shared/crash`}},
	{variant: variant{bug: greatOvertakesSmall, fails: `shared/small-limit`}},
	{variant: variant{bug: checksSumThenTakes, fails: `shared/small-limit shared/sum`}},
	{variant: variant{bug: sharesOfDeadStay, fails: `shared/crash`}},
}

// sharedModels counts the models.
var sharedModels atomic.Int64

func newSharedModel(b bug, fair bool) *sharedModel {
	m := &sharedModel{bug: b, fair: fair, waiting: map[string]waitingOwner{}, granted: map[string]grantedShare{}}
	m.name = fmt.Sprint("drivertest ", sharedModels.Add(1))
	return m
}

func (m *sharedModel) has(b bug) bool { return m.bug == b }

func (m *sharedModel) backing(tb testing.TB) Backing {
	first := memstore.Named(m.name) // keeps the locks while no other store is open
	tb.Cleanup(func() { _ = first.Close() })
	return Backing{
		Open: func(testing.TB) driver.Store { return &sharedStore{memstore.Named(m.name), m} },
		Crash: func(_ testing.TB, s driver.Store) {
			for owner, share := range m.granted {
				if m.has(sharesOfDeadStay) && share.store == s {
					_, _ = first.Renew(context.Background(), []driver.RenewRequest{{Name: share.name, Owner: owner, TTL: long}})
				}
			}
		},
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
	if req.Limit != 0 && m.has(sharedIsUnsupported) || req.Claim && !m.fair {
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
	overtakes := held && rec.Limit != 0 && rec.Waiting > 0 && !req.Claim && m.fair && m.granted[req.Owner].name != req.Name &&
		(m.has(readersOvertake) && req.Limit == driver.Shared || m.has(greatOvertakesSmall) && req.Limit > used)
	switch {
	case req.Limit == driver.Shared && (m.has(sharedIsExclusive) || m.has(readersQueueAsWriters) && req.Queue > 0):
		req.Limit = 0
	case req.Limit == 0 && held && rec.Limit == driver.Shared && m.has(exclusiveJoinsReaders):
		req.Limit = driver.Shared
	case req.Limit == driver.Shared && held && rec.Limit == 0 && m.has(readersJoinWriter), overtakes:
		return driver.AcquireResult{Granted: true, Token: rec.Token + 1}, nil
	case req.Limit > 0 && m.has(limitIsOneMore):
		req.Limit++
	case req.Limit > 1 && m.has(limitIsOneLess):
		req.Limit--
	case req.Limit > 0 && rec.Limit > 0 && m.has(firstLimitCounts):
		req.Limit = rec.Limit
	case req.Limit > readers && m.has(readersCount):
		req.Limit -= readers
	case req.Limit > 0 && m.has(sharesLeak):
		req.TTL = max(req.TTL, long)
	case req.Limit > 0 && m.has(checksSumThenTakes) && held && rec.Limit != 0 && m.granted[req.Owner].name == "":
		if used >= req.Limit {
			return driver.AcquireResult{Held: rec}, nil
		}
		m.mu.Unlock()
		time.Sleep(time.Microsecond)
		m.mu.Lock()
		req.Limit = driver.MaxLimit
	case m.granted[req.Owner].name == req.Name && req.Limit != 0 && m.has(repetitionIsSecondShare):
		req.Owner += " again"
	}
	wait := m.waiting[req.Name]
	if !m.fair {
		req.Queue = 0
	}
	if !m.fair && wait.owner != asked.Owner && time.Now().Before(wait.until) && m.granted[req.Owner].name != req.Name && !req.Claim && !m.has(readersOvertake) {
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
		m.granted[req.Owner] = grantedShare{s, req.Name}
		if m.has(readersHaveOneToken) && held && rec.Limit != 0 {
			res.Token = rec.Token
		}
	case !m.fair && res.Queued && held && rec.Limit != 0 && !req.Claim:
		wait = waitingOwner{asked.Owner, time.Now().Add(asked.Queue)}
		if m.has(waitsLastForever) {
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
			if m.has(renewsAllOfName) && share.name == req.Name {
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
	if m.waiting[req.Name].owner == req.Owner && !m.has(releasedWaitGoesOn) {
		delete(m.waiting, req.Name)
	}
	share := m.granted[req.Owner]
	for owner, other := range m.granted {
		if m.has(releasesAllOfName) && share.name == req.Name && owner != req.Owner && other.name == req.Name {
			_, _ = s.Store.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: owner})
		}
	}
	keep := req.Keep
	if share.name == req.Name && (m.has(keptReaderIsExclusive) || m.has(keptShareIsFreed)) {
		req.Keep = 0
	}
	delete(m.granted, req.Owner)
	released, err := s.Store.Release(ctx, req)
	if keep > req.Keep && m.has(keptReaderIsExclusive) && released {
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
	case s.m.has(othersAreNotShown):
		rec.Others = nil
	case s.m.has(limitsAreNotShown):
		rec.Limit, rec.Others = 0, slices.Clone(rec.Others)
		for i := range rec.Others {
			rec.Others[i].Limit = 0
		}
	}
	return rec
}

func (s *sharedStore) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	switch rec, held, _ := s.Store.Lookup(ctx, req.Name); {
	case req.Token == 0 && s.m.has(breakEndsOldest):
		req.Token = rec.Token
	case held && s.m.has(breakTokenEndsAll):
		req.Token = 0
	}
	return s.Store.Break(ctx, req)
}

// The reference store of shared holds passes the whole suite, and one that is not fair, which sends
// no notices, the theme "shared".
func TestSharedReference(t *testing.T) {
	Run(t, Harness{Virtual: true, New: func(tb testing.TB) Backing { return newSharedModel("", true).backing(tb) }})
	if failed := sharedFailures(t, "", true); failed != nil {
		t.Errorf("a store that is not fair fails %q", failed)
	}
}

// TestSharedBite is TestBite for the theme "shared".
func TestSharedBite(t *testing.T) {
	for _, v := range sharedVariants {
		t.Run(fmt.Sprint(v.bug, " unfair=", v.unfair), func(t *testing.T) {
			v.check(t, sharedFailures(t, v.bug, v.unfair))
		})
	}
}

// sharedFailures is failures for the theme "shared".
func sharedFailures(t *testing.T, b bug, unfair bool) (failed []string) {
	h := Harness{Virtual: true, New: func(tb testing.TB) Backing { return newSharedModel(b, !unfair).backing(tb) }}
	backing := h.New(t)
	have := available(t.Context(), backing.Open(t), backing)
	for _, c := range sharedCases {
		if !have.contains(c.requires) || c.without&have != 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			if record(t, c, h, have).Failed() {
				failed = append(failed, "shared/"+c.name)
			}
		})
	}
	return failed
}
