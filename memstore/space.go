package memstore

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A space is the data behind one or more Stores.
type space struct {
	mu       sync.Mutex
	began    time.Time
	holds    map[string]*hold
	watchers map[string][]chan struct{}
	tokens   tokens
	grants   uint // counts grants, to pace the sweep

	users int // guarded by named
}

// A hold is the state of one name. Times are on the space's monotonic clock.
type hold struct {
	owner    string
	holder   string
	token    int64
	since    time.Duration
	until    time.Duration
	metadata map[string]string
	kept     bool
}

func newSpace() *space {
	return &space{
		began:    time.Now(),
		holds:    map[string]*hold{},
		watchers: map[string][]chan struct{}{},
		tokens:   tokens{ahead: map[string]int64{}},
		users:    1,
	}
}

func (sp *space) now() time.Duration { return time.Since(sp.began) }

// current returns the hold or keep in force, dropping one that has run out.
// The caller holds sp.mu.
func (sp *space) current(name string, now time.Duration) *hold {
	h := sp.holds[name]
	if h != nil && h.until <= now {
		delete(sp.holds, name)
		return nil
	}
	return h
}

// owned returns the hold of an owner, nil if the name is not its own.
func (sp *space) owned(name, owner string, now time.Duration) *hold {
	if h := sp.current(name, now); h != nil && h.owner == owner && !h.kept {
		return h
	}
	return nil
}

func (sp *space) acquire(req *driver.AcquireRequest) (driver.AcquireResult, error) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	h := sp.current(req.Name, now)
	if h != nil && (h.owner != req.Owner || h.kept) {
		return driver.AcquireResult{Held: sp.record(req.Name, h, now)}, nil
	}
	if h != nil { // a repetition
		h.until = max(h.until, now+req.TTL)
		return driver.AcquireResult{Granted: true, Token: h.token}, nil
	}
	token, err := sp.tokens.next(req.Name, sp.began.Add(now).UnixMicro(), req.Floor)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	sp.sweep(now)
	sp.holds[req.Name] = &hold{
		owner:    req.Owner,
		holder:   req.Holder,
		token:    token,
		since:    now,
		until:    now + req.TTL,
		metadata: req.Metadata,
	}
	return driver.AcquireResult{Granted: true, Token: token}, nil
}

func (sp *space) renew(reqs []driver.RenewRequest) []driver.RenewOutcome {
	outcomes := make([]driver.RenewOutcome, len(reqs))
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	for i, req := range reqs {
		outcomes[i] = driver.RenewLost
		if h := sp.owned(req.Name, req.Owner, now); h != nil {
			h.until = max(h.until, now+req.TTL)
			outcomes[i] = driver.Renewed
		}
	}
	return outcomes
}

func (sp *space) release(req *driver.ReleaseRequest) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	h := sp.current(req.Name, now)
	if h == nil || h.owner != req.Owner {
		return false
	}
	if req.Keep > 0 {
		h.kept = true
		h.until = now + req.Keep
		sp.wake(req.Name) // it may end sooner than the waiters reckon
		return true
	}
	if h.kept {
		return false
	}
	delete(sp.holds, req.Name)
	sp.wake(req.Name)
	return true
}

func (sp *space) breakHold(name string) (driver.Record, bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	h := sp.current(name, now)
	if h == nil {
		return driver.Record{}, false
	}
	delete(sp.holds, name)
	sp.wake(name)
	return sp.record(name, h, now), true
}

// sweepEvery and sweepSize pace the removal of what is over and was never asked
// for again: two entries are looked at for each grant, so that they cannot
// outnumber those in use for long.
const (
	sweepEvery = 64
	sweepSize  = 128
)

func (sp *space) sweep(now time.Duration) {
	sp.grants++
	if sp.grants%sweepEvery != 0 {
		return
	}
	sweep(sp.holds, func(h *hold) bool { return h.until <= now })
	sweep(sp.tokens.ahead, sp.tokens.passed)
}

// sweep looks at some entries and drops those that are over.
func sweep[V any](entries map[string]V, over func(V) bool) {
	looked := 0
	for name, entry := range entries { // begins at a random place
		if over(entry) {
			delete(entries, name)
		}
		if looked++; looked == sweepSize {
			return
		}
	}
}
