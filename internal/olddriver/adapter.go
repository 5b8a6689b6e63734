package olddriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An Adapter makes a Store of this contract one of package driver. It is temporary: it goes with
// the last store that runs on it (issues 33 to 35).
//
// The old store names a token only to a request that acquires. So where Renew is asked for a token
// that the Adapter does not know, it sends an Acquire: a Claim to a store that is Fair, to any
// other the request of the owner again. Therefore it remembers requests, until they are over.
type Adapter struct {
	old        Store
	fair       bool
	guarantees driver.Guarantees

	mu      sync.Mutex
	owners  map[[2]string]*owner // by name and owner
	sweepAt time.Time            // when those that are over are dropped next
}

// An owner is what the Adapter remembers of one: of every owner if the store is not Fair, else of
// those that have requested several tokens and may not have been granted them yet.
type owner struct {
	req     AcquireRequest
	waiting bool  // as last answered
	token   int64 // of its hold, 0 if it is not known
	until   time.Time
}

var _ driver.Notifier = (*Adapter)(nil)

var (
	errFewTokens    = errors.New("the store gives fewer consecutive tokens than requested at the moment")
	errTokenUnknown = errors.New("the owner holds the name, and the store does not tell under which token")
)

// sweepInterval is how often requests that are over are forgotten.
const sweepInterval = time.Minute

// Adapt returns an Adapter of a store that grants up to so many tokens at once.
func Adapt(old Store, tokens int) *Adapter {
	g := old.Guarantees()
	crash := driver.FateKept
	if g.HolderCrash == RecoveryAtOnce {
		crash = driver.FateFreed
	}
	return &Adapter{old: old, fair: g.Fair, owners: map[[2]string]*owner{}, guarantees: driver.Guarantees{
		Store: g.Store, Fencing: g.Fencing, Queue: g.Fair, Limits: g.Limited, Keep: g.Keep, Tokens: tokens, Grain: g.Grain,
		Crash: crash, Restart: driver.Fate(g.Restart), Failover: driver.Fate(g.Failover), InProcess: g.Scope == ScopeProcess,
	}}
}

// Old returns the store itself.
func (a *Adapter) Old() Store { return a.old }

// Guarantees implements [driver.Store].
func (a *Adapter) Guarantees() driver.Guarantees { return a.guarantees }

// Close implements [driver.Store].
func (a *Adapter) Close() error { return a.old.Close() }

// Acquire implements [driver.Store]. A second request of an owner is not refused: the store grants
// the hold again.
func (a *Adapter) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	old, err := a.translate(req)
	if err != nil {
		return driver.Result{}, err
	}
	if !a.fair || old.Tokens > 1 {
		a.remember(old)
	}
	res, err := a.old.Acquire(ctx, old)
	switch {
	case err != nil && !driver.IsNotApplied(err):
		return driver.Result{}, err
	case err != nil || !res.Granted && !res.Queued || res.Granted && a.fair:
		a.forget(req.Name, req.Owner)
	case res.Granted:
		a.keep(req.Name, req.Owner, false, res.Token, req.TTL)
	default:
		a.keep(req.Name, req.Owner, true, 0, req.Place)
	}
	if err == nil && res.Granted && res.Tokens < old.Tokens {
		if err := a.endShort(ctx, req.Name, req.Owner); err != nil {
			return driver.Result{}, err
		}
		return driver.Result{}, &driver.RetryError{Err: errFewTokens}
	}
	return driver.Result{Granted: res.Granted, Waiting: res.Queued, Token: res.Token, Held: NewRecord(res.Held)}, err
}

// translate returns the old request for a new one. Tokens is 0 for one token.
func (a *Adapter) translate(req driver.Request) (AcquireRequest, error) {
	old := AcquireRequest{Name: req.Name, Owner: req.Owner, Holder: req.Holder, TTL: req.TTL, Queue: req.Place,
		Limit: req.Limit, Tokens: req.Tokens, Floor: req.Floor, Detached: req.Detached, Metadata: req.Metadata}
	switch {
	case req.Limit < 0 || req.Limit > driver.Shared || req.Tokens < 0 || req.Tokens > max(a.guarantees.Tokens, 1):
		return old, fmt.Errorf("%w: the limit or the number of tokens is out of bounds", driver.ErrInvalid)
	case req.Tokens > 1 && (req.Limit > 1 || req.Floor > 0):
		return old, fmt.Errorf("%w: several tokens for a request with a limit or a floor", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return old, fmt.Errorf("%w: a floor for a request that waits", driver.ErrInvalid)
	case len(req.Metadata) > 0 && !a.old.Guarantees().Metadata:
		return old, fmt.Errorf("%w: metadata", driver.ErrUnsupported)
	case req.Limit <= 1:
		old.Limit = 0
	case req.Limit == driver.Shared:
		old.Limit = Shared
	}
	if old.Tokens == 1 {
		old.Tokens = 0
	}
	return old, nil
}

// endShort releases a grant of fewer tokens than requested. Its error says nothing about the
// request that was granted.
func (a *Adapter) endShort(ctx context.Context, name, owner string) error {
	_, err := a.old.Release(ctx, ReleaseRequest{Name: name, Owner: owner})
	if err != nil {
		return fmt.Errorf("%w, and the release of the others failed: %v", errFewTokens, err)
	}
	a.forget(name, owner)
	return nil
}

// Renew implements [driver.Store]. What the old Renew can answer is one batch. Tokens that are not
// known, and the turn of an owner that waits at a store that is not Fair, take a request each.
func (a *Adapter) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	var batch []RenewRequest
	var batched, asked []int // positions in reqs
	for i, r := range reqs {
		known, _ := a.recall(r.Name, r.Owner)
		if r.Token == 0 && known.waiting && !a.fair {
			asked = append(asked, i)
			continue
		}
		batched = append(batched, i)
		batch = append(batch, RenewRequest{Name: r.Name, Owner: r.Owner, TTL: r.TTL, Token: cmp.Or(r.Token, known.token)})
	}
	entries := make([]driver.Entry, len(reqs))
	var outcomes []RenewOutcome
	var err error
	if len(batch) > 0 {
		outcomes, err = a.old.Renew(ctx, batch)
	}
	for j, outcome := range outcomes {
		i, r := batched[j], batch[j]
		switch {
		case outcome == RenewLost && reqs[i].Token != 0:
			entries[i] = driver.Entry{State: driver.Lost} // The owner may have an entry with another token.
		case outcome == RenewLost:
			entries[i] = a.lost(r.Name, r.Owner, r.Token)
		case outcome == RenewQueued:
			entries[i] = driver.Entry{State: driver.Waiting}
			a.keep(r.Name, r.Owner, true, 0, r.TTL)
		case outcome == Renewed && r.Token == 0 && a.guarantees.Fencing:
			asked = append(asked, i)
		case outcome == Renewed:
			entries[i] = a.held(r.Name, r.Owner, r.Token, r.TTL)
		}
	}
	errs := make([]error, len(asked))
	var group sync.WaitGroup
	for j, i := range asked {
		group.Go(func() { entries[i], errs[j] = a.ask(ctx, reqs[i]) })
	}
	group.Wait()
	return entries, cmp.Or(err, errors.Join(errs...))
}

// ask sends a request that acquires, to learn what an owner has.
func (a *Adapter) ask(ctx context.Context, r driver.RenewRequest) (driver.Entry, error) {
	known, remembered := a.recall(r.Name, r.Owner)
	req := AcquireRequest{Name: r.Name, Owner: r.Owner, Claim: true, TTL: r.TTL, Queue: r.TTL}
	if !a.fair {
		if !remembered {
			return a.find(ctx, r)
		}
		// A hold that was a place has the end of the place at least.
		req, req.TTL = known.req, max(r.TTL, min(time.Until(known.until), known.req.TTL))
		if req.Queue > 0 {
			req.Queue = r.TTL
		}
	}
	res, err := a.old.Acquire(ctx, req)
	if _, still := a.recall(r.Name, r.Owner); !still && !a.fair {
		// The owner was released meanwhile. The request may have overtaken that.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, err := a.old.Release(undo, ReleaseRequest{Name: r.Name, Owner: r.Owner})
		return driver.Entry{State: driver.Lost}, err
	}
	switch {
	case err != nil:
		return driver.Entry{}, err
	case res.Granted && res.Tokens < known.req.Tokens:
		if err := a.endShort(ctx, r.Name, r.Owner); err != nil {
			return driver.Entry{}, err
		}
		return driver.Entry{State: driver.Lost}, nil
	case res.Granted:
		return a.held(r.Name, r.Owner, res.Token, r.TTL), nil
	case res.Queued:
		a.keep(r.Name, r.Owner, true, 0, r.TTL)
		return driver.Entry{State: driver.Waiting}, nil
	}
	return a.lost(r.Name, r.Owner, known.token), nil
}

// find learns the token of a hold that another process has acquired: with which of those that the
// name has the owner can renew it.
func (a *Adapter) find(ctx context.Context, r driver.RenewRequest) (driver.Entry, error) {
	records, err := a.Lookup(ctx, r.Name)
	for _, rec := range records {
		if rec.Token == 0 || rec.Kept {
			continue
		}
		outcomes, err := a.old.Renew(ctx, []RenewRequest{{Name: r.Name, Owner: r.Owner, TTL: r.TTL, Token: rec.Token}})
		if err != nil {
			return driver.Entry{}, err
		}
		if outcomes[0] == Renewed {
			return driver.Entry{State: driver.Held, Token: rec.Token}, nil
		}
	}
	return driver.Entry{}, cmp.Or(err, errTokenUnknown)
}

// lost is the entry of an owner that has none with a token. It may have one with another.
func (a *Adapter) lost(name, owner string, token int64) driver.Entry {
	if known, _ := a.recall(name, owner); known.token == token {
		a.forget(name, owner)
	}
	return driver.Entry{State: driver.Lost}
}

func (a *Adapter) held(name, owner string, token int64, d time.Duration) driver.Entry {
	if a.fair {
		a.forget(name, owner)
	} else {
		a.keep(name, owner, false, token, d)
	}
	return driver.Entry{State: driver.Held, Token: token}
}

// Release implements [driver.Store].
func (a *Adapter) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	known, _ := a.recall(req.Name, req.Owner)
	if req.Keep == 0 || a.guarantees.Keep {
		a.forget(req.Name, req.Owner)
	}
	ended, err := a.old.Release(ctx, ReleaseRequest(req))
	return ended || err == nil && known.waiting && req.Keep == 0, err
}

// Lookup implements [driver.Store].
func (a *Adapter) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return flatten(a.old.Lookup(ctx, name))
}

// Break implements [driver.Store]. A token behind the first of a block is not found.
func (a *Adapter) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return flatten(a.old.Break(ctx, BreakRequest{Name: name, Token: token}))
}

// List implements [driver.Store].
func (a *Adapter) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for old, err := range a.old.List(ctx, prefix) {
			if err != nil {
				if !yield(driver.Record{}, err) {
					return
				}
				continue
			}
			records, _ := flatten(old, true, nil)
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
}
