package filestore

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.admitAcquire(ctx, &req); err != nil {
		return driver.AcquireResult{}, err
	}
	session, err := s.sessionFor(ctx, req.Detached)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	refuses := func(rec *record) bool { return !rec.isHeldBy(req.Owner, &s.host) && s.inTheWay(rec) }
	e, refused, err := s.take(ctx, req.Name, refuses)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	defer e.close()
	if refused || refuses(&e.rec) {
		return driver.AcquireResult{Held: e.rec.public(&s.host)}, nil
	}
	if e.rec.isHeldBy(req.Owner, &s.host) {
		err = s.prolong(ctx, e, req.TTL)
	} else {
		err = s.grant(ctx, e, &req, session)
	}
	if err != nil {
		return driver.AcquireResult{}, err
	}
	return driver.AcquireResult{Granted: true, Token: e.rec.Token}, nil
}

func (s *Store) admitAcquire(ctx context.Context, req *driver.AcquireRequest) error {
	if err := s.admit(ctx, req.Name); err != nil {
		return err
	}
	switch {
	case req.Owner == "":
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	case req.TTL <= 0:
		return fmt.Errorf("%w: the TTL is not positive", driver.ErrInvalid)
	case !utf8.ValidString(req.Holder):
		return fmt.Errorf("%w: the holder is not UTF-8", driver.ErrInvalid)
	}
	return nil
}

// grant gives the name of e, which is free, to the owner of req.
func (s *Store) grant(ctx context.Context, e *entry, req *driver.AcquireRequest, session string) error {
	next, err := s.nextToken(ctx, e.rec.Token, req.Floor)
	if err != nil {
		return err
	}
	rec := record{
		Name:     req.Name,
		State:    stateHeld,
		Holder:   req.Holder,
		Token:    next.token,
		After:    e.rec.Token,
		Since:    timeOfDay(s.host.wall()),
		Metadata: req.Metadata,
		Owner:    ownerHash(req.Owner),
		Session:  session,
	}
	rec.extend(req.TTL, &s.host)
	if err := e.write(rec); err != nil {
		return err
	}
	if !next.flush {
		return nil
	}
	if err := s.flush(e); err != nil {
		// A repetition must not find a token that may yet be forgotten.
		if failed := e.write(e.rec.free()); failed != nil {
			return fmt.Errorf("%w; %w", err, failed)
		}
		return notApplied(err)
	}
	return nil
}
