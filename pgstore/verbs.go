package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := pgclient.CheckOwner(req.Owner); err != nil {
		return driver.AcquireResult{}, err
	}
	switch {
	case req.Floor > driver.MaxToken:
		return driver.AcquireResult{}, fmt.Errorf("%w: the floor is above the greatest token", driver.ErrInvalid)
	case req.Limit != 0 || req.Weight != 0:
		return driver.AcquireResult{}, fmt.Errorf("%w: the locks of a table are exclusive", driver.ErrUnsupported)
	case req.Claim && !s.guarantees.Fair:
		return driver.AcquireResult{}, fmt.Errorf("%w: a queue needs a connection that listens", driver.ErrUnsupported)
	}
	queue := req.Queue
	if !s.guarantees.Fair || s.cannotListen.Load() && (!req.Claim || req.NoPlace) {
		queue = 0
	}
	metadata, err := encodeMetadata(req.Metadata)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	res, decided, err := s.tryPrepared(ctx, &req, queue, metadata)
	contended := false
	if err == nil && !decided {
		res, contended, err = s.acquire(ctx, &req, queue, metadata)
	}
	switch {
	case err != nil:
		return driver.AcquireResult{}, err
	case contended:
		s.nameCache.setContended(req.Name)
	case res.Granted:
		s.nameCache.setHeld(req.Name, req.TTL)
	case res.Held.Remaining > 0:
		s.nameCache.setHeld(req.Name, res.Held.Remaining)
	default:
		s.nameCache.setUnknown(req.Name)
	}
	return res, nil
}

// acquire makes an attempt in full, which waits for a time if queue is above zero. It also reports
// whether the name has waiters.
func (s *Store) acquire(ctx context.Context, req *driver.AcquireRequest, queue time.Duration, metadata string) (
	res driver.AcquireResult, contended bool, err error,
) {
	var micros int64
	var notifyTo *string
	if queue > 0 {
		place := s.notifier.expect(req.Name, req.Owner, queue)
		micros, notifyTo = ceilMicros(queue), &place
	}
	var tokens int64
	var isNew, rowOpen, notify bool
	row := recordRow{}
	args := []any{req.Name, req.Owner, req.Holder, ceilMicros(req.TTL), req.Floor, int64(max(1, min(req.Tokens, driver.MaxTokens))), metadata,
		s.options.SynchronousCommit, s.options.RequireStandby, micros, req.Claim, !req.NoPlace, notifyTo}
	columns := row.columns(&res.Token, &tokens, &isNew, &rowOpen, &res.Queued, &res.First, &contended, &notify)
	if err := s.queryRow(ctx, s.queries.acquire, args, columns...); err != nil {
		return driver.AcquireResult{}, false, err
	}
	if isNew {
		s.maybeSweep()
	}
	if notify {
		s.notifyWaiters(req.Name)
	}
	if res.Queued {
		s.startListening()
	}
	switch res.Granted = res.Token > 0; {
	case res.Granted:
		res.Tokens = int(tokens)
	case valueOrZero(row.left) > 0:
		res.Held = row.toRecord(req.Name)
	case rowOpen:
		res.Held = driver.Record{Name: req.Name, Holder: openRowHolder}
	}
	return res, contended, nil
}

// openRowHolder is shown as the holder of a name while another transaction has locked its row.
// Until that transaction ends nobody can acquire the name, and the result of the transaction is not
// known. It has no place in the queue either: waiters try at intervals.
const openRowHolder = "a transaction that has the row open"

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	var ended, hasWaiters, notify bool
	row := recordRow{}
	args := []any{req.Name, s.options.SynchronousCommit, req.Token, s.options.RequireStandby}
	found, err := s.queryOptional(ctx, s.queries.breakName, args, row.columns(&ended, &hasWaiters, &notify)...)
	if err != nil || !found || !ended {
		return driver.Record{}, false, err
	}
	s.nameCache.setFree(req.Name)
	if notify {
		s.nameCache.setContended(req.Name)
		s.notifyWaiters(req.Name)
	}
	return row.toRecord(req.Name), true, nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	row := recordRow{}
	found, err := s.queryOptional(ctx, s.queries.lookup, []any{name}, row.columns(&row.waiting)...)
	if !found {
		return driver.Record{}, false, err
	}
	return row.toRecord(name), true, nil
}

// ceilMicros rounds up, so that nothing ends too early.
func ceilMicros(d time.Duration) int64 {
	return max(1, int64((d+time.Microsecond-1)/time.Microsecond))
}
