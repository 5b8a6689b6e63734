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

// A Store is a store in memory. It implements [driver.Store] and
// [driver.Watcher]. Its methods never block.
type Store struct {
	table  *lockTable
	closed atomic.Bool
}

var _ driver.Watcher = (*Store)(nil)

// New returns an empty store that is not shared with any other.
func New() *Store {
	return &Store{table: newLockTable()}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.AcquireResult{}, err
	}
	return s.table.acquire(&req)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	return s.table.renewHolds(reqs), nil
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	return s.table.release(&req), nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	rec, held := s.table.lookupRecord(name)
	return rec, held, nil
}

// List implements [driver.Store]. It yields a snapshot taken when it starts.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.checkUsable(ctx); err != nil {
			yield(driver.Record{}, err)
			return
		}
		for _, rec := range s.table.listRecords(prefix) {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.Record{}, false, err
	}
	rec, held := s.table.breakHold(req)
	return rec, held, nil
}

// Watch implements [driver.Watcher].
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	return s.table.addWatcher(ctx, name), nil
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:       "memory",
		Scope:       driver.ScopeProcess,
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

// Close implements [driver.Store]. The holds of a store made by New end with it.
// Those of a named store stay as long as another Store of that name is open.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.table.removeStore()
	}
	return nil
}

func (s *Store) checkUsable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return contextEndedError{err}
	}
	return nil
}

// contextEndedError is the error of a context that ended before the call. Nothing was
// changed.
type contextEndedError struct{ error }

func (e contextEndedError) Unwrap() []error { return []error{e.error, driver.ErrNotApplied} }

func (t *lockTable) lookupRecord(name string) (driver.Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	h := t.currentHold(name, now)
	if h == nil {
		return driver.Record{}, false
	}
	return t.recordOf(name, h, now), true
}

func (t *lockTable) listRecords(prefix string) []driver.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.monotonicNow()
	var records []driver.Record
	for name, h := range t.holds {
		if h.until > now && strings.HasPrefix(name, prefix) {
			records = append(records, t.recordOf(name, h, now))
		}
	}
	return records
}

// recordOf describes a hold without its owner, as clients may see it.
func (t *lockTable) recordOf(name string, h *hold, now time.Duration) driver.Record {
	rec := driver.Record{
		Name:      name,
		Holder:    h.holder,
		Token:     h.token,
		Since:     t.created.Add(h.since).Round(0),
		Until:     t.created.Add(h.until).Round(0),
		Remaining: h.until - now,
		Metadata:  h.metadata,
	}
	if h.kept {
		rec.Holder, rec.Kept, rec.Metadata = "", true, nil
	}
	return rec
}

// addWatcher registers a channel that is signalled until ctx ends.
func (t *lockTable) addWatcher(ctx context.Context, name string) <-chan struct{} {
	signal := make(chan struct{}, 1)
	t.mu.Lock()
	t.watchers[name] = append(t.watchers[name], signal)
	t.mu.Unlock()
	context.AfterFunc(ctx, func() { t.removeWatcher(name, signal) })
	return signal
}

func (t *lockTable) removeWatcher(name string, signal chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := slices.DeleteFunc(t.watchers[name], func(c chan struct{}) bool { return c == signal })
	if len(rest) == 0 {
		delete(t.watchers, name)
		return
	}
	t.watchers[name] = rest
}

// wakeWatchers signals the watchers of a name. The caller must hold t.mu.
func (t *lockTable) wakeWatchers(name string) {
	for _, signal := range t.watchers[name] {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}

// removeStore is called when a Store over the table is closed. When the last one is
// closed, it deletes the holds, and the table's entry in namedTables.
func (t *lockTable) removeStore() {
	namedTables.Lock()
	defer namedTables.Unlock()
	t.openStores--
	if t.openStores > 0 {
		return
	}
	maps.DeleteFunc(namedTables.byName, func(_ string, other *lockTable) bool { return other == t })
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.holds)
}
