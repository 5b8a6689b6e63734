package olddriver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Unwrap returns the old store under an Adapter. It makes any other store one of this contract,
// for a quorum: without places, and so without notices. It is as temporary as Adapter.
func Unwrap(s driver.Store) Store {
	if adapted, ok := s.(interface{ Old() Store }); ok {
		return adapted.Old()
	}
	return &reversed{Store: s, owners: map[[2]string]time.Time{}}
}

// A reversed makes a store of package driver one of this contract. The new contract has one
// Acquire for an owner. That of an owner which may have a hold already is therefore a Renew first.
type reversed struct {
	driver.Store
	mu     sync.Mutex
	owners map[[2]string]time.Time // those that may have a hold, and until when
}

var errNoEntry = errors.New("the store has no answer")

func (s *reversed) Guarantees() Guarantees {
	g := s.Store.Guarantees()
	old := Guarantees{Store: g.Store, Scope: ScopeNetwork, Fencing: g.Fencing, HolderCrash: RecoveryTTL, Grain: g.Grain,
		Restart: Fate(g.Restart), Failover: Fate(g.Failover), Detached: true, Shared: g.Limits, Limited: g.Limits,
		Lookup: true, List: true, Break: true, Metadata: true, Keep: g.Keep}
	switch {
	case g.InProcess:
		old.Scope = ScopeProcess
	case g.Failover == driver.FateFreed:
		old.Scope = ScopeHost
	}
	if g.Crash == driver.FateFreed {
		old.HolderCrash = RecoveryAtOnce
	}
	return old
}

func (s *reversed) Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error) {
	if req.Claim {
		return AcquireResult{}, fmt.Errorf("%w: Claim", driver.ErrUnsupported)
	}
	key := [2]string{req.Name, req.Owner}
	if s.mayHold(key, req.TTL) {
		entries, err := s.Store.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		switch {
		case len(entries) != 1 || entries[0].State == driver.Unknown:
			if err == nil {
				err = errNoEntry
			}
			return AcquireResult{}, err
		case entries[0].State == driver.Held:
			return AcquireResult{Granted: true, Token: entries[0].Token}, nil
		}
	}
	limit := req.Limit
	if limit == Shared {
		limit = driver.Shared
	}
	res, err := s.Store.Acquire(ctx, driver.Request{Name: req.Name, Owner: req.Owner, Holder: req.Holder, TTL: req.TTL,
		Limit: limit, Floor: req.Floor, Detached: req.Detached, Metadata: req.Metadata})
	if !res.Granted && (err == nil || driver.IsNotApplied(err)) {
		s.forget(key)
	}
	return AcquireResult{Granted: res.Granted, Token: res.Token, Held: oldRecord(res.Held)}, err
}

// mayHold reports whether an owner is known, and records that it is from now on.
func (s *reversed) mayHold(key [2]string, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	until, known := s.owners[key]
	if !known && len(s.owners)%1024 == 1023 {
		for other, end := range s.owners {
			if now.After(end) {
				delete(s.owners, other)
			}
		}
	}
	if end := now.Add(ttl + s.Store.Guarantees().Grain + time.Minute); end.After(until) {
		s.owners[key] = end
	}
	return known
}

func (s *reversed) forget(key [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, key)
}

func (s *reversed) Renew(ctx context.Context, reqs []RenewRequest) ([]RenewOutcome, error) {
	renewals := make([]driver.RenewRequest, len(reqs))
	for i, r := range reqs {
		renewals[i] = driver.RenewRequest{Name: r.Name, Owner: r.Owner, Token: r.Token, TTL: r.TTL}
		s.mayHold([2]string{r.Name, r.Owner}, r.TTL)
	}
	entries, err := s.Store.Renew(ctx, renewals)
	outcomes := make([]RenewOutcome, len(entries))
	for i, entry := range entries {
		switch entry.State {
		case driver.Held:
			outcomes[i] = Renewed
		case driver.Lost:
			outcomes[i] = RenewLost
		}
	}
	return outcomes, err
}

func (s *reversed) Release(ctx context.Context, req ReleaseRequest) (bool, error) {
	ended, err := s.Store.Release(ctx, driver.ReleaseRequest(req))
	if err == nil {
		s.forget([2]string{req.Name, req.Owner})
	}
	return ended, err
}

func (s *reversed) Lookup(ctx context.Context, name string) (Record, bool, error) {
	return join(s.Store.Lookup(ctx, name))
}

func (s *reversed) Break(ctx context.Context, req BreakRequest) (Record, bool, error) {
	return join(s.Store.Break(ctx, req.Name, req.Token))
}

func (s *reversed) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var together []driver.Record // of one name
		for rec, err := range s.Store.List(ctx, prefix) {
			if len(together) > 0 && (err != nil || rec.Name != together[0].Name) {
				if old, _, _ := join(together, nil); !yield(old, nil) {
					return
				}
				together = nil
			}
			if err == nil {
				together = append(together, rec)
			} else if !yield(Record{}, err) {
				return
			}
		}
		if len(together) > 0 {
			old, _, _ := join(together, nil)
			yield(old, nil)
		}
	}
}

// join returns the records of a name as one.
func join(records []driver.Record, err error) (Record, bool, error) {
	if err != nil || len(records) == 0 {
		return Record{}, false, err
	}
	first := oldRecord(records[0])
	for _, rec := range records[1:] {
		other := oldRecord(rec)
		other.Waiting = 0
		first.Others = append(first.Others, other)
	}
	return first, true, nil
}

func oldRecord(rec driver.Record) Record {
	limit := rec.Limit
	if limit == driver.Shared {
		limit = Shared
	}
	return Record{Name: rec.Name, Holder: rec.Holder, Token: rec.Token, Since: rec.Since, Remaining: rec.Remaining,
		Kept: rec.Kept, Limit: limit, Waiting: rec.Waiting, Metadata: rec.Metadata}
}
