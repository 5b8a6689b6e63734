package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	for i, req := range reqs {
		if s.w.has(batchUsesFirstTTL) {
			req.TTL = reqs[0].TTL
		}
		if s.w.has(batchIsCut) && i >= 100 {
			break
		}
		outcomes[i] = s.renew(req)
	}
	if s.w.has(batchOutOfOrder) && len(reqs) == 6 {
		outcomes[0], outcomes[1] = outcomes[1], outcomes[0]
	}
	if s.w.has(emptyBatchFails) && len(reqs) == 0 {
		_ = s.end()
		return nil, driver.ErrInvalid
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *refStore) renew(req driver.RenewRequest) driver.RenewOutcome {
	w := s.w
	e := s.at(req.Name)
	past := w.entries[w.key(req.Name)]
	switch {
	case e == nil && w.has(renewRevivesExpired) && past != nil && past.owner == req.Owner:
		e = past
	case e == nil && w.has(renewTakesFree) && past == nil:
		s.grant(driver.AcquireRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
		return driver.Renewed
	case e == nil:
		return driver.RenewLost
	case e.record.Kept && !w.has(keepLetsOwnerRenew):
		return driver.RenewLost
	case !w.owns(e, req.Owner) && !w.has(renewForgetsOwner):
		return driver.RenewLost
	}
	if w.has(renewOnOwnStoreOnly) && e.takenBy != s {
		return driver.RenewLost
	}
	until := s.expiry(req.TTL)
	switch {
	case w.has(renewDoesNothing):
	case until.After(e.until), w.has(renewShortens):
		e.until = until
	}
	if w.has(renewalAttaches) {
		e.takenBy, e.detached = s, false
	}
	if w.has(renewChangesToken) {
		e.record.Token = s.token(w.key(req.Name), 0)
	}
	if w.has(renewDropsMetadata) {
		e.record.Metadata = nil
	}
	return driver.Renewed
}

func (s *refStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if ctx.Err() != nil && s.w.has(endedCallsApply) {
		_, _ = s.Release(context.WithoutCancel(ctx), req)
		return false, driver.ErrNotApplied
	}
	if err := s.begin(ctx); err != nil {
		if errors.Is(err, errLink) && s.w.has(lostMeansAnswered) {
			return true, nil
		}
		return false, err
	}
	released, err := s.release(req)
	if lost := s.end(); lost != nil {
		return false, lost
	}
	return released, err
}

func (s *refStore) release(req driver.ReleaseRequest) (bool, error) {
	w := s.w
	key := w.key(req.Name)
	if req.Keep > 0 && (!w.claims.Keep && !w.has(underclaimsKeep) || w.has(overclaimsKeep)) {
		if w.has(refusedKeepReleases) {
			delete(w.entries, key)
		}
		return false, driver.ErrUnsupported
	}
	e := s.at(req.Name)
	switch {
	case e == nil:
		return w.has(releaseAlwaysTrue), nil
	case e.record.Kept && w.has(keepFreedByAnyone):
		delete(w.entries, key)
		return true, nil
	case !w.owns(e, req.Owner) && !w.has(releaseForgetsOwner) && !(w.has(nobodyIsEverybody) && req.Owner == ""):
		return w.has(releaseAlwaysTrue), nil
	case e.record.Kept && w.has(keepNotRepeatable):
		return false, nil
	case e.record.Kept && req.Keep == 0:
		return false, nil
	}
	if w.has(releaseByOwnerEndsAll) {
		for name, other := range w.entries {
			if other.owner == req.Owner && name != key {
				delete(w.entries, name)
			}
		}
	}
	left := *e
	w.left[key] = &left
	if req.Keep > 0 && !w.has(ignoresKeep) {
		s.keep(e, req)
	} else if w.has(releasesLate) {
		time.AfterFunc(time.Millisecond, func() { w.drop(key, e) })
	} else if !w.has(releaseDoesNothing) {
		delete(w.entries, key)
	}
	if !w.has(releaseDoesNotWake) {
		w.wake(req.Name, s)
	}
	return true, nil
}

func (w *world) drop(key string, e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries[key] == e {
		delete(w.entries, key)
	}
}

func (s *refStore) keep(e *entry, req driver.ReleaseRequest) {
	w := s.w
	until := s.expiry(req.Keep)
	if w.has(keepOnlyLengthens) {
		until = time.UnixMicro(max(until.UnixMicro(), e.until.UnixMicro()))
	}
	if w.has(keepOnlyShortens) {
		until = time.UnixMicro(min(until.UnixMicro(), e.until.UnixMicro()))
	}
	e.until = until
	e.record.Kept = !w.has(keepIsNotMarked)
	if !w.has(keepNamesHolder) && e.record.Kept {
		e.record.Holder = ""
	}
}
