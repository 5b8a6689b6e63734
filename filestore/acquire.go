package filestore

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.admitAcquire(ctx, &req); err != nil {
		return driver.AcquireResult{}, err
	}
	session, err := s.ownSession(ctx)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	e, err := s.take(ctx, req.Name)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	defer e.close()
	if e.rec.State == stateHeld && e.rec.ownedBy(req.Owner) && e.rec.lasts(&s.host) {
		err = s.prolong(e, req.TTL, session)
	} else if s.inTheWay(&e.rec) {
		return driver.AcquireResult{Held: e.rec.public(&s.host)}, nil
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
	before := e.rec
	next, err := s.nextToken(ctx, before.Token, req.Floor)
	if err != nil {
		return err
	}
	rec := record{
		Name:     req.Name,
		State:    stateHeld,
		Holder:   req.Holder,
		Token:    next.token,
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
	if err := e.sync(); err != nil {
		// A repetition must not find a token that may yet be forgotten.
		return errors.Join(err, e.write(before.free()))
	}
	return nil
}
