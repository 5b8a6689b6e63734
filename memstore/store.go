package memstore

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/notices"
)

// A Store is a store in memory. It implements [driver.Store] and
// [driver.Notifier]. Its methods never block.
type Store struct {
	table  *lockTable
	grain  time.Duration // added to each TTL, Queue and Keep
	closed atomic.Bool

	notices notices.Registry
}

var _ driver.Notifier = (*Store)(nil)

// New returns an empty store that is not shared with any other.
func New() *Store {
	return &Store{table: newLockTable()}
}

// NewCoarse returns an empty store that is not shared, and measures time in steps: each hold, place
// and keep lasts for grain longer than requested. It is for tests of code that is to run on such a
// store, too (see [driver.Guarantees]).
func NewCoarse(grain time.Duration) *Store {
	return &Store{table: newLockTable(), grain: grain}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.checkUsable(ctx); err != nil {
		return driver.AcquireResult{}, err
	}
	req.TTL += s.grain
	if req.Queue > 0 {
		req.Queue += s.grain
	}
	return s.table.acquire(s, &req)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		req.TTL += s.grain
		outcomes[i] = s.table.renew(&req)
	}
	return outcomes, nil
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	if req.Keep > 0 {
		req.Keep += s.grain
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

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(driver.Notice)) (stop func()) { return s.notices.Notify(f) }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:       "memory",
		Scope:       driver.ScopeProcess,
		Fencing:     true,
		HolderCrash: driver.RecoveryAtOnce,
		Grain:       s.grain,
		Restart:     driver.FateFreed,
		Failover:    driver.FateFreed,
		Fair:        true,
		Shared:      true,
		Limited:     true,
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
	return driver.NotApplied(ctx.Err())
}
