package memstore

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lockTable is the data behind one or more Stores.
type lockTable struct {
	mu       sync.Mutex
	created  time.Time
	holds    map[string]*hold
	watchers map[string][]chan struct{}
	tokens   tokens
	grants   uint // the number of grants, which paces sweepExpired

	openStores int // guarded by namedTables
}

// A hold is the hold or keep of one name. Times are since lockTable.created, on the
// monotonic clock.
type hold struct {
	owner    string
	holder   string
	token    int64
	tokens   int // how many the grant had
	since    time.Duration
	until    time.Duration
	metadata map[string]string
	kept     bool
}

func newLockTable() *lockTable {
	return &lockTable{
		created:    time.Now(),
		holds:      map[string]*hold{},
		watchers:   map[string][]chan struct{}{},
		tokens:     tokens{aheadOfCounter: map[string]int64{}},
		openStores: 1,
	}
}

func (t *lockTable) monotonicNow() time.Duration { return time.Since(t.created) }

// currentHold returns the hold or keep in force, and deletes one that has expired.
// The caller must hold t.mu.
func (t *lockTable) currentHold(name string, now time.Duration) *hold {
	h := t.holds[name]
	if h != nil && h.until <= now {
		delete(t.holds, name)
		return nil
	}
	return h
}

// holdOf returns the hold of an owner, nil if the owner does not hold the name. The
// caller must hold t.mu.
func (t *lockTable) holdOf(name, owner string, now time.Duration) *hold {
	if h := t.currentHold(name, now); h != nil && h.owner == owner && !h.kept {
		return h
	}
	return nil
}

func (t *lockTable) acquire(req *driver.AcquireRequest) (driver.AcquireResult, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	h := t.currentHold(req.Name, now)
	if h != nil && (h.owner != req.Owner || h.kept) {
		return driver.AcquireResult{Held: t.recordOf(req.Name, h, now)}, nil
	}
	if h != nil { // a repetition
		h.until = max(h.until, now+req.TTL)
		return driver.AcquireResult{Granted: true, Token: h.token, Tokens: h.tokens}, nil
	}
	token, count, err := t.tokens.nextToken(req.Name, t.created.Add(now).UnixMicro(), req.Floor, req.Tokens)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	t.sweepExpired(now)
	t.holds[req.Name] = &hold{
		owner:    req.Owner,
		holder:   req.Holder,
		token:    token,
		tokens:   count,
		since:    now,
		until:    now + req.TTL,
		metadata: req.Metadata,
	}
	return driver.AcquireResult{Granted: true, Token: token, Tokens: count}, nil
}

func (t *lockTable) renewHolds(reqs []driver.RenewRequest) []driver.RenewOutcome {
	outcomes := make([]driver.RenewOutcome, len(reqs))
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	for i, req := range reqs {
		outcomes[i] = driver.RenewLost
		if h := t.holdOf(req.Name, req.Owner, now); h != nil {
			h.until = max(h.until, now+req.TTL)
			outcomes[i] = driver.Renewed
		}
	}
	return outcomes
}

func (t *lockTable) release(req *driver.ReleaseRequest) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	h := t.currentHold(req.Name, now)
	if h == nil || h.owner != req.Owner {
		return false
	}
	if req.Keep > 0 {
		h.kept = true
		h.until = now + req.Keep
		t.wakeWatchers(req.Name) // the keep may end sooner than the waiters expect
		return true
	}
	if h.kept {
		return false
	}
	delete(t.holds, req.Name)
	t.wakeWatchers(req.Name)
	return true
}

func (t *lockTable) breakHold(req driver.BreakRequest) (driver.Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	h := t.currentHold(req.Name, now)
	if h == nil || req.Token != 0 && h.token != req.Token {
		return driver.Record{}, false
	}
	delete(t.holds, req.Name)
	t.wakeWatchers(req.Name)
	return t.recordOf(req.Name, h, now), true
}

// sweepEvery and sweepSize pace the removal of expired entries that no request has
// found since: two entries are examined for each grant, so that expired entries cannot
// outnumber those in use for long.
const (
	sweepEvery = 64
	sweepSize  = 128
)

func (t *lockTable) sweepExpired(now time.Duration) {
	t.grants++
	if t.grants%sweepEvery != 0 {
		return
	}
	deleteMatching(t.holds, func(h *hold) bool { return h.until <= now })
	deleteMatching(t.tokens.aheadOfCounter, t.tokens.isObsolete)
}

// deleteMatching examines up to sweepSize entries and deletes those that match.
func deleteMatching[V any](entries map[string]V, match func(V) bool) {
	examined := 0
	for name, entry := range entries { // begins at a random place
		if match(entry) {
			delete(entries, name)
		}
		if examined++; examined == sweepSize {
			return
		}
	}
}
