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
		if s.model.has(batchUsesFirstTTL) {
			req.TTL = reqs[0].TTL
		}
		if s.model.has(batchIsCut) && i >= 100 {
			break
		}
		outcomes[i] = s.renew(req)
	}
	if s.model.has(batchOutOfOrder) && len(reqs) == 6 {
		outcomes[0], outcomes[1] = outcomes[1], outcomes[0]
	}
	if s.model.has(emptyBatchFails) && len(reqs) == 0 {
		_ = s.end()
		return nil, driver.ErrInvalid
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *refStore) renew(req driver.RenewRequest) driver.RenewOutcome {
	m := s.model
	if !m.has(renewDoesNotSettle) {
		s.settle(req.Name)
	}
	e := s.at(req.Name)
	past := m.entries[m.key(req.Name)]
	switch {
	case e == nil && m.has(renewRevivesExpired) && past != nil && past.owner == req.Owner:
		e = past
	case e == nil && m.has(renewTakesFree) && past == nil:
		s.grant(driver.AcquireRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
		return driver.Renewed
	case e == nil:
		return s.renewPlace(req)
	case e.record.Kept && !m.has(keepLetsOwnerRenew):
		return s.renewPlace(req)
	case !m.owns(e, req.Owner) && !m.has(renewForgetsOwner):
		return s.renewPlace(req)
	case req.Token != 0 && req.Token != e.record.Token && !m.has(renewIgnoresToken):
		return driver.RenewLost
	}
	if m.has(renewOnOwnStoreOnly) && e.takenBy != s {
		return driver.RenewLost
	}
	until := s.expiry(req.TTL)
	switch {
	case m.has(renewDoesNothing), m.has(admittedIsNotProlonged) && e.admitted:
	case until.After(e.until), m.has(renewShortens):
		e.until = until
	}
	if m.has(renewalAttaches) {
		e.takenBy, e.detached = s, false
	}
	if m.has(renewChangesToken) {
		e.record.Token = s.token(m.key(req.Name), 0)
	}
	if m.has(renewDropsMetadata) {
		e.record.Metadata = nil
	}
	return driver.Renewed
}

func (s *refStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if ctx.Err() != nil && s.model.has(endedCallsApply) {
		_, _ = s.Release(context.WithoutCancel(ctx), req)
		return false, driver.ErrNotApplied
	}
	if err := s.begin(ctx); err != nil {
		if errors.Is(err, errLink) && s.model.has(lostMeansAnswered) {
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
	m := s.model
	key := m.key(req.Name)
	if req.Keep > 0 && (!m.claims.Keep && !m.has(underclaimsKeep) || m.has(overclaimsKeep)) {
		if m.has(refusedKeepReleases) {
			delete(m.entries, key)
		}
		return false, driver.ErrUnsupported
	}
	s.settle(req.Name)
	e := s.at(req.Name)
	if (e == nil || !m.owns(e, req.Owner)) && s.releasePlace(req) {
		return true, nil
	}
	switch {
	case e == nil:
		return m.has(releaseAlwaysTrue), nil
	case e.record.Kept && m.has(keepFreedByAnyone):
		delete(m.entries, key)
		return true, nil
	case !m.owns(e, req.Owner) && !m.has(releaseForgetsOwner) && !(m.has(nobodyIsEverybody) && req.Owner == ""):
		return m.has(releaseAlwaysTrue), nil
	case m.has(releasesByFirstTTL) && !s.now().Before(e.first):
		return false, nil
	case e.record.Kept && m.has(keepNotRepeatable):
		return false, nil
	case e.record.Kept && req.Keep == 0:
		return false, nil
	}
	if m.has(releaseByOwnerEndsAll) {
		for name, other := range m.entries {
			if other.owner == req.Owner && name != key {
				delete(m.entries, name)
			}
		}
	}
	left := *e
	m.left[key] = &left
	if req.Keep > 0 && !m.has(ignoresKeep) {
		s.keep(e, req)
	} else if m.has(releasesLate) {
		time.AfterFunc(time.Millisecond, func() { m.drop(key, e) })
	} else if !m.has(releaseDoesNothing) {
		delete(m.entries, key)
	}
	if req.Keep > 0 || m.has(newcomersOvertake) {
		s.askFirst(req.Name)
	} else {
		s.settle(req.Name)
	}
	if req.Keep == 0 && !m.has(releaseDoesNotAsk) || req.Keep > 0 && !m.has(keepDoesNotAsk) {
		m.ask(req.Name, s)
	}
	if m.has(releaseIsReportedLost) {
		m.notify(e.takenBy, driver.Notice{Kind: driver.Lost, Name: req.Name, Owner: req.Owner})
	}
	return true, nil
}

func (m *model) drop(key string, e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[key] == e {
		delete(m.entries, key)
	}
}

func (s *refStore) keep(e *entry, req driver.ReleaseRequest) {
	m := s.model
	until := s.expiry(req.Keep)
	if m.has(keepOnlyLengthens) {
		until = time.UnixMicro(max(until.UnixMicro(), e.until.UnixMicro()))
	}
	if m.has(keepOnlyShortens) {
		until = time.UnixMicro(min(until.UnixMicro(), e.until.UnixMicro()))
	}
	e.until = until
	e.record.Kept = !m.has(keepIsNotMarked)
	if !m.has(keepNamesHolder) && e.record.Kept {
		e.record.Holder = ""
	}
}
