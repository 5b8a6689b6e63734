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
	"github.com/holdfast-go/holdfast/internal/notices"
)

// A Store is a store in memory. It implements [driver.Store] and
// [driver.Notifier]. Its methods never block.
type Store struct {
	table   *lockTable
	closed  atomic.Bool
	notices notices.Registry
}

var _ driver.Notifier = (*Store)(nil)

// New returns an empty store that is not shared with any other.
func New() *Store { return NewCoarse(0) }

// NewCoarse returns an empty store that is not shared, and measures time in steps: each hold, place
// and keep lasts for grain longer than requested. It is for tests of code that is to run on such a
// store, too (see [driver.Guarantees]).
func NewCoarse(grain time.Duration) *Store {
	return &Store{table: newLockTable(grain)}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	q, now, err := s.lock(ctx, req.Name)
	if err != nil {
		return res, err
	}
	t := s.table
	var swept []entry
	if q == &t.none {
		q, swept = t.add(req.Name, now)
	}
	q.counter.Clock = max(t.counter+1, t.created.UnixMicro()+now.Microseconds())
	own, told, err := q.Acquire(&req, holderData{s, req.Name, req.Holder, req.Metadata}, now, &q.counter)
	if own.Token != 0 {
		t.counter = q.counter.Clock
	}
	res = driver.Result{
		Granted: own.State == driver.Held, Waiting: own.State == driver.Waiting, Token: own.Token,
	}
	if err == nil && !res.Granted {
		res.Held = t.record(q.Holds()[0], q.Waiting(), now)
	}
	s.unlock(append(told, swept...), nil)
	return res, err
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(reqs))
	for i, req := range reqs {
		q, now, err := s.lock(ctx, req.Name)
		if err != nil {
			return entries, err
		}
		var told []entry
		entries[i], told = q.Renew(req.Owner, req.Token, req.TTL, now)
		s.unlock(told, nil)
	}
	return entries, nil
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	q, now, err := s.lock(ctx, req.Name)
	if err != nil {
		return false, err
	}
	found, told := q.Release(req.Owner, req.Keep, now)
	s.unlock(told, nil)
	return found, nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	q, now, err := s.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	told := q.Settle(now)
	for _, e := range q.Holds() {
		records = append(records, s.table.record(e, q.Waiting(), now))
	}
	s.unlock(told, nil)
	return records, nil
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		s.table.mu.Lock()
		names := slices.Collect(maps.Keys(s.table.names))
		s.table.mu.Unlock()
		for _, name := range append(names, "") { // "" is no lock: a look for the error
			if name != "" && !strings.HasPrefix(name, prefix) {
				continue
			}
			records, err := s.Lookup(ctx, name)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) (records []driver.Record, err error) {
	q, now, err := s.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	ended, told := q.Break(token, now)
	for i := range ended {
		records = append(records, s.table.record(&ended[i], q.Waiting()+len(told), now))
	}
	s.unlock(told, ended)
	return records, nil
}

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.notices.Notify(f)
}

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:     "memory",
		Fencing:   true,
		Queue:     true,
		Limits:    true,
		Keep:      true,
		Tokens:    driver.MaxTokens,
		Grain:     s.table.grain,
		Crash:     driver.FateFreed,
		Restart:   driver.FateFreed,
		Failover:  driver.FateFreed,
		InProcess: true,
	}
}

// lock returns the state of a name, and the time, for the use of one verb.
func (s *Store) lock(ctx context.Context, name string) (q *queue, now time.Duration, err error) {
	if s.closed.Load() {
		return nil, 0, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, driver.NotApplied(err)
	}
	s.table.mu.Lock()
	if q = s.table.names[name]; q == nil {
		q = &s.table.none
	}
	return q, time.Since(s.table.created), nil
}

// unlock ends that use, and then sends the notices: its token to each entry that has become a hold,
// and 0 to each that was broken.
func (s *Store) unlock(told, broken []entry) {
	s.table.mu.Unlock()
	for _, e := range told {
		e.Data.store.notices.Send(e.Data.name, e.Owner, e.Token)
	}
	for _, e := range broken {
		if !e.Kept {
			e.Data.store.notices.Send(e.Data.name, e.Owner, 0)
		}
	}
}
