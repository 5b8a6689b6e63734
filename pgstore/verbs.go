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
	if req.Floor > driver.MaxToken {
		return driver.AcquireResult{}, fmt.Errorf("%w: the floor is above the greatest token", driver.ErrInvalid)
	}
	metadata, err := encodeMetadata(req.Metadata)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	res, decided, err := s.tryPrepared(ctx, &req, metadata)
	if err == nil && !decided {
		res, err = s.acquire(ctx, &req, metadata)
	}
	switch {
	case err != nil:
		return driver.AcquireResult{}, err
	case res.Granted:
		s.nameCache.setHeld(req.Name, req.TTL)
	case res.Held.Remaining > 0:
		s.nameCache.setHeld(req.Name, res.Held.Remaining)
	default:
		s.nameCache.setUnknown(req.Name)
	}
	return res, nil
}

// acquire makes an attempt in full.
func (s *Store) acquire(ctx context.Context, req *driver.AcquireRequest, metadata string) (driver.AcquireResult, error) {
	var res driver.AcquireResult
	var isNew, rowOpen bool
	row := recordRow{}
	args := []any{req.Name, req.Owner, req.Holder, ceilMicros(req.TTL), req.Floor, metadata, s.options.SynchronousCommit, s.options.RequireStandby}
	if err := s.queryRow(ctx, s.queries.acquire, args, row.columns(&res.Token, &isNew, &rowOpen)...); err != nil {
		return driver.AcquireResult{}, err
	}
	if isNew {
		s.maybeSweep()
	}
	switch res.Granted = res.Token > 0; {
	case res.Granted:
	case rowOpen && valueOrZero(row.left) <= 0:
		res.Held = s.rowOpenRecord(req.Name)
	default:
		res.Held = row.toRecord(req.Name)
	}
	return res, nil
}

// openRowHolder is shown as the holder of a name while another transaction has locked its row.
// Until that transaction ends nobody can acquire the name, and the result of the transaction is not
// known.
const openRowHolder = "a transaction that has the row open"

// openRowRetry is how often waiters try again for such a name. The end of a transaction is not
// notified.
const openRowRetry = 250 * time.Millisecond

// rowOpenRecord describes the hold of a name while another transaction has locked its row.
func (s *Store) rowOpenRecord(name string) driver.Record {
	time.AfterFunc(openRowRetry, func() { s.watcher.SignalName(name) })
	return driver.Record{Name: name, Holder: openRowHolder}
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	var ended, hasWaiters bool
	row := recordRow{}
	args := []any{req.Name, s.options.SynchronousCommit, req.Token}
	found, err := s.queryOptional(ctx, s.queries.breakName, args, row.columns(&ended, &hasWaiters)...)
	if err != nil || !found || !ended {
		return driver.Record{}, false, err
	}
	s.nameCache.setFree(req.Name)
	if hasWaiters {
		s.notifyReleased(req.Name)
	}
	return row.toRecord(req.Name), true, nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	row := recordRow{}
	found, err := s.queryOptional(ctx, s.queries.lookup, []any{name}, row.columns()...)
	if !found {
		return driver.Record{}, false, err
	}
	return row.toRecord(name), true, nil
}

// ceilMicros rounds up, so that nothing ends too early.
func ceilMicros(d time.Duration) int64 {
	return max(1, int64((d+time.Microsecond-1)/time.Microsecond))
}
