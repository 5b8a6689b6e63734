package filestore

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Acquire implements [olddriver.Store].
func (s direct) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	if err := s.checkAcquire(ctx, &req); err != nil {
		return olddriver.AcquireResult{}, err
	}
	queued := req.Queue > 0 && s.watcher.isWaiting(req.Name, req.Owner) && s.addWaiter(ctx, &req)
	res, err := s.attempt(ctx, &req)
	if err == nil && !res.Granted && req.Queue > 0 && !queued {
		if queued = s.addWaiter(ctx, &req); queued {
			res, err = s.attempt(ctx, &req) // The release may have come before the notices began.
		}
	}
	if res.Granted {
		s.removeWaiter(req.Name, req.Owner)
	} else if queued && err == nil {
		res.Queued = true
	}
	return res, err
}

// attempt grants a name to the owner of req if nothing is in the way. Otherwise it records the owner
// as the waiter if mustRecordWaiter reports so.
func (s *engine) attempt(ctx context.Context, req *olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	session, err := s.sessionFor(ctx, req.Detached)
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	f, err := s.lockOrCreate(ctx, locksFolder, fileName(req.Name))
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	defer f.Close()
	if err := f.decode(req.Name, &s.host); err != nil {
		return olddriver.AcquireResult{}, err
	}
	own := f.rec.entryOf(req.Owner, &s.host)
	if own == nil || own.State == stateKept {
		own = nil
		if why := s.refusalOf(&f.rec, req); why != notRefused {
			res := olddriver.AcquireResult{Held: s.holdInTheWay(&f.rec)}
			if s.mustRecordWaiter(&f.rec, req, why) {
				err = s.recordWaiter(ctx, f, req)
			}
			return res, err
		}
	}
	var hold record
	if own != nil {
		hold, err = s.extendHold(ctx, f, own, req.TTL)
	} else {
		hold, err = s.grantHold(ctx, f, req, session)
	}
	if err != nil {
		return olddriver.AcquireResult{}, err
	}
	// The count has a bound since other users may write the record.
	tokens := int(min(hold.lastToken()-hold.Token+1, olddriver.MaxTokens))
	return olddriver.AcquireResult{Granted: true, Token: hold.Token, Tokens: tokens}, nil
}

// recordWaiter writes the owner of req into the record as the waiter. Without room in the record
// the owner keeps no others out, which is not an error.
func (s *engine) recordWaiter(ctx context.Context, f *storeFile, req *olddriver.AcquireRequest) error {
	session, err := s.ensureSession(ctx)
	if err != nil {
		return err
	}
	next := f.rec.with(nil, nil, &s.host)
	if next.Tolerant == nil {
		return nil // The holds in the way have just expired.
	}
	next.setWaiter(ownerHash(req.Owner), s.host.uptime()+req.Queue, session)
	if err := f.write(next); err != nil {
		if driver.IsNotApplied(err) {
			err = nil
		}
		return err
	}
	s.examineName(req.Name)
	return nil
}

func (s *engine) checkAcquire(ctx context.Context, req *olddriver.AcquireRequest) error {
	if err := s.checkRequest(ctx, req.Name); err != nil {
		return err
	}
	switch {
	case req.Claim:
		return fmt.Errorf("%w: a claim, since the store keeps no queue", driver.ErrUnsupported)
	case req.Limit > olddriver.MaxLimit:
		return fmt.Errorf("%w: the limit is above %d", driver.ErrInvalid, olddriver.MaxLimit)
	case req.Owner == "":
		return fmt.Errorf("%w: no owner", driver.ErrInvalid)
	case req.TTL <= 0:
		return fmt.Errorf("%w: the TTL is not positive", driver.ErrInvalid)
	case !utf8.ValidString(req.Holder):
		return fmt.Errorf("%w: the holder is not UTF-8", driver.ErrInvalid)
	}
	return nil
}

// grantHold gives the name of f to the owner of req, and returns the hold.
func (s *engine) grantHold(ctx context.Context, f *storeFile, req *olddriver.AcquireRequest, session string) (record, error) {
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
	if req.Limit != 0 {
		rec.Limit = max(req.Limit, olddriver.Shared)
	}
	needsFlush, err := s.setTokens(ctx, &rec, req)
	if err != nil {
		return record{}, err
	}
	rec.setExpiry(req.TTL, &s.host)
	if f.rec.isWaiter(req.Owner, &s.host) {
		f.rec.setWaiter("", 0, "")
	}
	if err := f.write(f.rec.with(nil, &rec, &s.host)); err != nil || !needsFlush {
		return rec, err
	}
	if err := s.flush(f); err != nil {
		// A repeated request must not find a token that a power loss may still erase.
		if failed := f.write(f.rec.with(f.rec.entryOf(req.Owner, &s.host), nil, &s.host)); failed != nil {
			return record{}, fmt.Errorf("%w; %w", err, failed)
		}
		return record{}, driver.NotApplied(err)
	}
	return rec, nil
}
