package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// Acquire implements [olddriver.Store].
func (s *engine) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	if err := pgclient.CheckOwner(req.Owner); err != nil {
		return olddriver.AcquireResult{}, err
	}
	switch {
	case req.Floor > driver.MaxToken:
		return olddriver.AcquireResult{}, fmt.Errorf("%w: the floor is above the greatest token", driver.ErrInvalid)
	case req.Claim && !s.guarantees.Fair:
		return olddriver.AcquireResult{}, fmt.Errorf("%w: a queue needs a connection that listens", driver.ErrUnsupported)
	}
	queue := req.Queue
	if !s.guarantees.Fair || s.cannotListen.Load() && !req.Claim {
		queue = 0
	}
	metadata, err := encodeMetadata(req.Metadata)
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	var res olddriver.AcquireResult
	decided, contended := false, false
	if req.Limit == 0 {
		res, decided, err = s.tryPrepared(ctx, &req, queue, metadata)
	}
	if err == nil && !decided {
		res, contended, err = s.acquire(ctx, &req, queue, metadata)
	}
	switch {
	case err != nil:
		return olddriver.AcquireResult{}, err
	case contended:
		s.nameCache.set(req.Name, stateContended, 0)
	case res.Granted:
		s.nameCache.set(req.Name, stateHeld, req.TTL)
	case res.Held.Remaining > 0:
		s.nameCache.set(req.Name, stateHeld, res.Held.Remaining)
	default:
		s.nameCache.set(req.Name, stateUnknown, 0)
	}
	return res, nil
}

// acquire makes an attempt in full, which waits for a time if queue is above zero. It also reports
// whether the name has waiters.
func (s *engine) acquire(ctx context.Context, req *olddriver.AcquireRequest, queue time.Duration, metadata string) (
	res olddriver.AcquireResult, contended bool, err error,
) {
	var micros int64
	var notifyTo *string
	if queue > 0 {
		address := s.notifier.addWaiter(req.Name, req.Owner, queue)
		micros, notifyTo = ceilMicros(queue), &address
	}
	var tokens int64
	var isNew, notify bool
	row := recordRow{}
	args := []any{req.Name, req.Owner, req.Holder, ceilMicros(req.TTL), req.Floor, int64(max(1, min(req.Tokens, olddriver.MaxTokens))), metadata,
		micros, req.Claim, notifyTo, int64(max(req.Limit, olddriver.Shared))}
	columns := row.columns(&res.Token, &tokens, &isNew, &res.Queued, &res.First, &contended, &notify, &row.limit, &row.waiting)
	if err := s.queryRow(ctx, s.queries.acquire, args, columns...); err != nil {
		return olddriver.AcquireResult{}, false, err
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
	}
	return res, contended, nil
}

// Break implements [olddriver.Store].
func (s *engine) Break(ctx context.Context, req olddriver.BreakRequest) (olddriver.Record, bool, error) {
	var broken olddriver.Record
	err := s.queryRows(ctx, s.queries.breakName, []any{req.Name, req.Token}, func() { broken = olddriver.Record{} }, func(scan scanner) error {
		row := recordRow{}
		if err := scan(row.shareColumns()...); err != nil {
			return err
		}
		if rec := row.toRecord(req.Name); broken.Name == "" {
			broken = rec
		} else {
			broken.Others = append(broken.Others, rec)
		}
		return nil
	})
	if err != nil || broken.Name == "" {
		return olddriver.Record{}, false, err
	}
	s.nameCache.set(req.Name, stateContended, 0)
	s.notifyWaiters(req.Name)
	return broken, true, nil
}

// Lookup implements [olddriver.Store].
func (s *engine) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	row := recordRow{}
	found, err := s.queryOptional(ctx, s.queries.lookup, []any{name}, row.columns(&row.waiting, &row.shares)...)
	if !found {
		return olddriver.Record{}, false, err
	}
	return row.toRecord(name), true, nil
}

// ceilMicros rounds up, so that nothing ends too early.
func ceilMicros(d time.Duration) int64 {
	return max(1, int64((d+time.Microsecond-1)/time.Microsecond))
}
