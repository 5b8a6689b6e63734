package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Store]. Every hold has a file of its own, so that one
// may be renewed and the next not.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
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

// renewError is one error for the failures among so many requests. It speaks for
// all of them, and so matches driver.ErrNotApplied only if each of them failed
// and nothing was changed by any.
func renewError(failures []error, requests int) error {
	if len(failures) == 0 {
		return nil
	}
	doubt := slices.IndexFunc(failures, func(err error) bool { return !driver.NotApplied(err) })
	first := failures[max(doubt, 0)]
	switch {
	case requests == 1:
		return first
	case doubt < 0 && len(failures) < requests:
		return fmt.Errorf("%d of %d holds have no answer: %v", len(failures), requests, first)
	}
	return fmt.Errorf("%d of %d holds have no answer: %w", len(failures), requests, first)
}

func (s *Store) renew(ctx context.Context, req driver.RenewRequest) (driver.RenewOutcome, error) {
	if err := s.admit(ctx, req.Name); err != nil {
		return driver.RenewUnknown, err
	}
	if req.TTL <= 0 {
		return driver.RenewUnknown, fmt.Errorf("%w: the TTL is not positive", driver.ErrInvalid)
	}
	e, err := s.find(ctx, req.Name, exclusive)
	if errors.Is(err, fs.ErrNotExist) {
		return driver.RenewLost, nil
	}
	if err != nil {
		return driver.RenewUnknown, err
	}
	defer e.close()
	if !e.rec.isHeldBy(req.Owner, &s.host) {
		return driver.RenewLost, nil
	}
	if err := s.prolong(ctx, e, req.TTL); err != nil {
		return driver.RenewUnknown, err
	}
	return driver.Renewed, nil
}

// prolong makes a hold last at least until ttl from now, for as long as the
// process lives that asks for it if it is not detached.
func (s *Store) prolong(ctx context.Context, e *entry, ttl time.Duration) error {
	rec := e.rec
	session, err := s.sessionFor(ctx, rec.detached())
	if err != nil {
		return err
	}
	if s.host.uptime()+ttl > rec.Expires {
		rec.extend(ttl, &s.host)
	}
	rec.Session = session
	return e.write(rec)
}
