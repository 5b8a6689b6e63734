package filestore

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Acquire implements [driver.Store].
func (s direct) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	if err := s.checkAcquire(ctx, &req); err != nil {
		return driver.AcquireResult{}, err
	}
	session, err := s.sessionFor(ctx, req.Detached)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	refuses := func(rec *record) bool { return !rec.isHeldBy(req.Owner, &s.host) && s.isHeld(rec) }
	rf, refused, err := s.lockForUpdate(ctx, req.Name, refuses)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	defer rf.close()
	if refused || refuses(&rf.rec) {
		return driver.AcquireResult{Held: rf.rec.publicRecord(&s.host)}, nil
	}
	if rf.rec.isHeldBy(req.Owner, &s.host) {
		err = s.extendHold(ctx, rf, req.TTL)
	} else {
		err = s.grantHold(ctx, rf, &req, session)
	}
	if err != nil {
		return driver.AcquireResult{}, err
	}
	return driver.AcquireResult{
		Granted: true,
		Token:   rf.rec.Token,
		Tokens:  int(min(rf.rec.lastToken()-rf.rec.Token+1, driver.MaxTokens)), // Other users may write the record.
	}, nil
}

func (s *Store) checkAcquire(ctx context.Context, req *driver.AcquireRequest) error {
	if err := s.checkRequest(ctx, req.Name); err != nil {
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

// grantHold gives the free name of rf to the owner of req.
func (s *Store) grantHold(ctx context.Context, rf *recordFile, req *driver.AcquireRequest, session string) error {
	next, err := s.nextToken(ctx, rf.rec.lastToken(), req)
	if err != nil {
		return err
	}
	rec := record{
		Name:     req.Name,
		State:    stateHeld,
		Holder:   req.Holder,
		Token:    next.token,
		Last:     next.last,
		After:    rf.rec.lastToken(),
		Since:    timeOfDay(s.host.wall()),
		Metadata: req.Metadata,
		Owner:    ownerHash(req.Owner),
		Session:  session,
	}
	rec.setExpiry(req.TTL, &s.host)
	if err := rf.write(rec); err != nil {
		return err
	}
	if !next.needsFlush {
		return nil
	}
	if err := s.flushRecord(rf); err != nil {
		// A repeated request must not find a token that a power loss may still erase.
		if failed := rf.write(rf.rec.freed()); failed != nil {
			return fmt.Errorf("%w; %w", err, failed)
		}
		return driver.NotApplied(err)
	}
	return nil
}
