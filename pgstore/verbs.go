package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := checkOwner(req.Owner); err != nil {
		return driver.AcquireResult{}, err
	}
	if req.Floor > driver.MaxToken {
		return driver.AcquireResult{}, fmt.Errorf("%w: the floor is above the greatest token", driver.ErrInvalid)
	}
	metadata, err := encodeMetadata(req.Metadata)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	res, final, err := s.tryFast(ctx, &req, metadata)
	if err == nil && !final {
		res, err = s.acquire(ctx, &req, metadata)
	}
	switch {
	case err != nil:
		return driver.AcquireResult{}, err
	case res.Granted:
		s.seen.held(req.Name, req.TTL)
	default:
		s.seen.held(req.Name, res.Held.Remaining)
	}
	return res, nil
}

// acquire makes an attempt in full.
func (s *Store) acquire(ctx context.Context, req *driver.AcquireRequest, metadata string) (driver.AcquireResult, error) {
	var res driver.AcquireResult
	var isNew bool
	row := recordRow{}
	args := []any{req.Name, req.Owner, req.Holder, micros(req.TTL), req.Floor, metadata, s.options.SynchronousCommit, s.options.RequireStandby}
	if err := s.one(ctx, s.text.acquire, args, row.columns(&res.Token, &isNew)...); err != nil {
		return driver.AcquireResult{}, err
	}
	if isNew {
		s.grown()
	}
	if res.Granted = res.Token > 0; !res.Granted {
		res.Held = row.record(req.Name)
	}
	return res, nil
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	var ended, awaited bool
	row := recordRow{}
	if err := s.one(ctx, s.text.breakName, []any{name, s.options.SynchronousCommit}, row.columns(&ended, &awaited)...); err != nil || !ended {
		return driver.Record{}, false, err
	}
	s.seen.free(name)
	if awaited {
		s.tell(name)
	}
	return row.record(name), true, nil
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	row := recordRow{}
	found, err := s.maybe(ctx, s.text.lookup, []any{name}, row.columns()...)
	if !found {
		return driver.Record{}, false, err
	}
	return row.record(name), true, nil
}

// micros rounds up, so that nothing ends too early.
func micros(d time.Duration) int64 {
	return max(1, int64((d+time.Microsecond-1)/time.Microsecond))
}
