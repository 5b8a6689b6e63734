package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Renew implements [olddriver.Store]. Every hold has a file of its own, so one may be renewed and the
// next one not.
func (s direct) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	outcomes := make([]olddriver.RenewOutcome, len(reqs))
	var failures []error
	for i, req := range reqs {
		outcome, err := s.renew(ctx, req)
		outcomes[i] = outcome
		if err != nil {
			failures = append(failures, err)
		}
	}
	return outcomes, renewError(failures, len(reqs))
}

// renewError returns one error for the failures among the given number of requests. It stands for
// all of them. So it matches driver.ErrNotApplied only if every request failed and none changed
// anything.
func renewError(failures []error, requests int) error {
	if len(failures) == 0 {
		return nil
	}
	maybeApplied := slices.IndexFunc(failures, func(err error) bool { return !driver.IsNotApplied(err) })
	first := failures[max(maybeApplied, 0)]
	switch {
	case requests == 1:
		return first
	case maybeApplied < 0 && len(failures) < requests:
		return fmt.Errorf("%d of %d holds have no answer: %v", len(failures), requests, first)
	}
	return fmt.Errorf("%d of %d holds have no answer: %w", len(failures), requests, first)
}

func (s *engine) renew(ctx context.Context, req olddriver.RenewRequest) (olddriver.RenewOutcome, error) {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return olddriver.RenewUnknown, err
	}
	if req.TTL <= 0 {
		return olddriver.RenewUnknown, fmt.Errorf("%w: the TTL is not positive", driver.ErrInvalid)
	}
	f, err := s.openRecord(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return olddriver.RenewLost, nil
	}
	if err != nil {
		return olddriver.RenewUnknown, err
	}
	defer f.Close()
	own := f.rec.entryOf(req.Owner, &s.host)
	if own == nil || own.State != stateHeld || req.Token != 0 && own.Token != req.Token {
		return olddriver.RenewLost, nil
	}
	if _, err := s.extendHold(ctx, f, own, req.TTL); err != nil {
		return olddriver.RenewUnknown, err
	}
	return olddriver.Renewed, nil
}

// extendHold makes a hold of f last until at least ttl from now, and returns it. Unless the hold is
// detached, it then belongs to the session of this Store.
func (s *engine) extendHold(ctx context.Context, f *storeFile, hold *record, ttl time.Duration) (record, error) {
	rec := *hold
	session, err := s.sessionFor(ctx, rec.detached())
	if err != nil {
		return record{}, err
	}
	if s.host.uptime()+ttl > rec.Expires {
		rec.setExpiry(ttl, &s.host)
	}
	rec.Session, rec.line = session, ""
	return rec, f.write(f.rec.with(hold, &rec, &s.host))
}
