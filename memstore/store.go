package memstore

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Store is a store in memory. It implements [driver.Store] and
// [driver.Watcher], and its methods never block.
type Store struct {
	space  *space
	closed atomic.Bool
}

var _ driver.Watcher = (*Store)(nil)

// New returns an empty store of its own.
func New() *Store {
	return &Store{space: newSpace()}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.usable(ctx); err != nil {
		return driver.AcquireResult{}, err
	}
	return s.space.acquire(&req)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.space.renew(reqs), nil
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	return s.space.release(&req), nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	rec, held := s.space.lookup(name)
	return rec, held, nil
}

// List implements [driver.Store]. It yields a picture taken when it starts.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, rec := range s.space.list(prefix) {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	rec, held := s.space.breakHold(name)
	return rec, held, nil
}

// Watch implements [driver.Watcher].
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return s.space.watch(ctx, name), nil
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:       "memory",
		Scope:       driver.ScopeProcess,
		Blocking:    driver.BlocksNever,
		Fencing:     true,
		HolderCrash: driver.RecoveryAtOnce,
		Restart:     driver.FateFreed,
		Failover:    driver.FateFreed,
		Push:        true,
		Lookup:      true,
		List:        true,
		Break:       true,
		Metadata:    true,
		Keep:        true,
		Detached:    true,
	}
}

// Close implements [driver.Store]. The holds of a store made by New go with it;
// those of a named store stay for the others who have it open.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.space.drop()
	}
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return notApplied{err}
	}
	return nil
}

// notApplied is a context's end noticed before anything was done.
type notApplied struct{ error }

func (e notApplied) Unwrap() []error { return []error{e.error, driver.ErrNotApplied} }

func (sp *space) lookup(name string) (driver.Record, bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	h := sp.current(name, now)
	if h == nil {
		return driver.Record{}, false
	}
	return sp.record(name, h, now), true
}

func (sp *space) list(prefix string) []driver.Record {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	now := sp.now()
	var records []driver.Record
	for name, h := range sp.holds {
		if h.until > now && strings.HasPrefix(name, prefix) {
			records = append(records, sp.record(name, h, now))
		}
	}
	return records
}

// record describes a hold for the eyes of others: without its owner.
func (sp *space) record(name string, h *hold, now time.Duration) driver.Record {
	rec := driver.Record{
		Name:      name,
		Holder:    h.holder,
		Token:     h.token,
		Since:     sp.began.Add(h.since).Round(0),
		Until:     sp.began.Add(h.until).Round(0),
		Remaining: h.until - now,
		Metadata:  h.metadata,
	}
	if h.kept {
		rec.Holder, rec.Kept, rec.Metadata = "", true, nil
	}
	return rec
}

// watch registers a channel until ctx ends.
func (sp *space) watch(ctx context.Context, name string) <-chan struct{} {
	signal := make(chan struct{}, 1)
	sp.mu.Lock()
	sp.watchers[name] = append(sp.watchers[name], signal)
	sp.mu.Unlock()
	context.AfterFunc(ctx, func() { sp.unwatch(name, signal) })
	return signal
}

func (sp *space) unwatch(name string, signal chan struct{}) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	rest := slices.DeleteFunc(sp.watchers[name], func(c chan struct{}) bool { return c == signal })
	if len(rest) == 0 {
		delete(sp.watchers, name)
		return
	}
	sp.watchers[name] = rest
}

// wake signals the watchers of a name. The caller holds sp.mu.
func (sp *space) wake(name string) {
	for _, signal := range sp.watchers[name] {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}

// drop forgets a user of the space; the last one takes everything along.
func (sp *space) drop() {
	named.Lock()
	defer named.Unlock()
	sp.users--
	if sp.users > 0 {
		return
	}
	maps.DeleteFunc(named.spaces, func(_ string, other *space) bool { return other == sp })
	sp.mu.Lock()
	defer sp.mu.Unlock()
	clear(sp.holds)
}
