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
		if s.model.has("batch uses first TTL") {
			req.TTL = reqs[0].TTL
		}
		if s.model.has("batch is cut") && i >= 100 {
			break
		}
		outcomes[i] = s.renew(req)
	}
	if s.model.has("batch out of order") && len(reqs) == 6 {
		outcomes[0], outcomes[1] = outcomes[1], outcomes[0]
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *refStore) renew(req driver.RenewRequest) driver.RenewOutcome {
	m := s.model
	if !m.has("renew does not settle") {
		s.settle(req.Name)
	}
	e := s.at(req.Name)
	past := m.entries[m.key(req.Name)]
	switch {
	case e == nil && m.has("renew revives expired") && past != nil && past.owner == req.Owner:
		e = past
	case e == nil && m.has("renew takes free") && past == nil:
		s.grant(driver.AcquireRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
		return driver.Renewed
	case e == nil:
		return s.renewPlace(req)
	case e.record.Kept && !m.has("keep lets owner renew"):
		return s.renewPlace(req)
	case !m.owns(e, req.Owner) && !m.has("renew forgets owner"):
		return s.renewPlace(req)
	case req.Token != 0 && req.Token != e.record.Token && !m.has("renew ignores token"):
		return driver.RenewLost
	}
	if m.has("renew on own store only") && e.takenBy != s {
		return driver.RenewLost
	}
	until := s.expiry(req.TTL)
	switch {
	case m.has("renew does nothing"), m.has("admitted is not prolonged") && e.admitted:
	case until.After(e.until), m.has("renew shortens"):
		e.until = until
	}
	if m.has("renewal attaches") {
		e.takenBy, e.detached = s, false
	}
	if m.has("renew changes token") {
		e.record.Token = s.token(m.key(req.Name), 0)
	}
	if m.has("renew drops metadata") {
		e.record.Metadata = nil
	}
	return driver.Renewed
}

func (s *refStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if ctx.Err() != nil && s.model.has("ended calls apply") {
		_, _ = s.Release(context.WithoutCancel(ctx), req)
		return false, driver.ErrNotApplied
	}
	if err := s.begin(ctx); err != nil {
		if errors.Is(err, errLink) && s.model.has("lost means answered") {
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
	if req.Keep > 0 && (!m.claims.Keep && !m.has("underclaims keep") || m.has("overclaims keep")) {
		if m.has("refused keep releases") {
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
		return m.has("release always true"), nil
	case e.record.Kept && m.has("keep freed by anyone"):
		delete(m.entries, key)
		return true, nil
	case !m.owns(e, req.Owner) && !m.has("release forgets owner"):
		return m.has("release always true"), nil
	case m.has("releases by first TTL") && !s.now().Before(e.first):
		return false, nil
	case e.record.Kept && m.has("keep not repeatable"):
		return false, nil
	case e.record.Kept && req.Keep == 0:
		return false, nil
	}
	if m.has("release by owner ends all") {
		for name, other := range m.entries {
			if other.owner == req.Owner && name != key {
				delete(m.entries, name)
			}
		}
	}
	left := *e
	m.left[key] = &left
	if req.Keep > 0 && !m.has("ignores keep") {
		s.keep(e, req)
	} else if m.has("releases late") {
		time.AfterFunc(time.Millisecond, func() { m.drop(key, e) })
	} else if !m.has("release does nothing") {
		delete(m.entries, key)
	}
	if req.Keep > 0 || m.has("newcomers overtake") {
		s.askFirst(req.Name)
	} else {
		s.settle(req.Name)
	}
	if req.Keep == 0 && !m.has("release does not ask") || req.Keep > 0 && !m.has("keep does not ask") {
		m.ask(req.Name, s)
	}
	if m.has("release is reported lost") {
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
	if m.has("keep only lengthens") {
		until = time.UnixMicro(max(until.UnixMicro(), e.until.UnixMicro()))
	}
	if m.has("keep only shortens") {
		until = time.UnixMicro(min(until.UnixMicro(), e.until.UnixMicro()))
	}
	e.until = until
	e.record.Kept = !m.has("keep is not marked")
	if !m.has("keep names holder") && e.record.Kept {
		e.record.Holder = ""
	}
}
