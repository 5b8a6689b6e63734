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
	if req.Claim {
		return driver.AcquireResult{Queued: s.addWaiter(ctx, &req)}, nil
	}
	waits := req.Queue > 0 && s.watcher.isWaiting(req.Name, req.Owner) && s.addWaiter(ctx, &req)
	res, err := s.attempt(ctx, &req)
	if err == nil && !res.Granted && req.Queue > 0 && !waits && s.addWaiter(ctx, &req) {
		waits = true
		res, err = s.attempt(ctx, &req) // The release may have come before the notices began.
	}
	if res.Granted {
		s.removeWaiter(req.Name, req.Owner)
	} else {
		res.Queued = waits && err == nil
	}
	return res, err
}

// attempt grants a name to the owner of req if no other owner has it.
func (s *Store) attempt(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	session, err := s.sessionFor(ctx, req.Detached)
	if err != nil {
		return driver.AcquireResult{}, err
	}
	refuses := func(rec *record) bool { return !rec.isHeldBy(req.Owner, &s.host) && s.isHeld(rec) }
	// Where the record is locked, an attempt that is refused in any case does not wait, so that it
	// does not queue ahead of the holder that is to release the name.
	f, locked, err := s.lockOrCreate(ctx, locksFolder, fileName(req.Name), func(f *storeFile) bool {
		var err error
		f.rec, err = peek(f.File)
		return err == nil && f.rec.Name == req.Name && refuses(&f.rec)
	})
	if err != nil {
		return driver.AcquireResult{}, err
	}
	defer f.Close()
	if locked {
		if err := f.decode(req.Name); err != nil {
			return driver.AcquireResult{}, err
		}
	}
	if !locked || refuses(&f.rec) {
		return driver.AcquireResult{Held: f.rec.publicRecord(&s.host)}, nil
	}
	if f.rec.isHeldBy(req.Owner, &s.host) {
		err = s.extendHold(ctx, f, req.TTL)
	} else {
		err = s.grantHold(ctx, f, req, session)
	}
	if err != nil {
		return driver.AcquireResult{}, err
	}
	return driver.AcquireResult{
		Granted: true,
		Token:   f.rec.Token,
		Tokens:  int(min(f.rec.lastToken()-f.rec.Token+1, driver.MaxTokens)), // Other users may write the record.
	}, nil
}

func (s *Store) checkAcquire(ctx context.Context, req *driver.AcquireRequest) error {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return err
	}
	switch {
	case req.Claim && (!req.NoPlace || req.Queue <= 0):
		return fmt.Errorf("%w: a claim, since the store keeps no queue", driver.ErrUnsupported)
	case req.Limit != 0 || req.Weight != 0:
		return fmt.Errorf("%w: shared and limited holds", driver.ErrUnsupported)
	case req.Owner == "":
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	case req.TTL <= 0:
		return fmt.Errorf("%w: the TTL is not positive", driver.ErrInvalid)
	case !utf8.ValidString(req.Holder):
		return fmt.Errorf("%w: the holder is not UTF-8", driver.ErrInvalid)
	}
	return nil
}

// grantHold gives the free name of f to the owner of req.
func (s *Store) grantHold(ctx context.Context, f *storeFile, req *driver.AcquireRequest, session string) error {
	rec := record{
		Name:     req.Name,
		State:    stateHeld,
		Holder:   req.Holder,
		After:    f.rec.lastToken(),
		Since:    timeOfDay(s.host.wall()),
		Metadata: req.Metadata,
		Owner:    ownerHash(req.Owner),
		Session:  session,
	}
	needsFlush, err := s.setTokens(ctx, &rec, req)
	if err != nil {
		return err
	}
	rec.setExpiry(req.TTL, &s.host)
	if err := f.write(rec); err != nil || !needsFlush {
		return err
	}
	if err := s.flush(f); err != nil {
		// A repeated request must not find a token that a power loss may still erase.
		if failed := f.write(f.rec.freed()); failed != nil {
			return fmt.Errorf("%w; %w", err, failed)
		}
		return driver.NotApplied(err)
	}
	return nil
}
