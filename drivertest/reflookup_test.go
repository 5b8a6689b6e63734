package drivertest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	switch {
	case s.model.has(lookupAlwaysFinds):
		return driver.Record{Name: name}, true, nil
	case s.model.has(lookupNeverFinds):
		return driver.Record{}, false, nil
	case !s.model.claims.Lookup && !s.model.has(underclaimsLookup):
		return driver.Record{}, false, driver.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, false, err
	}
	defer func() { _ = s.end() }()
	e := s.at(name)
	if e == nil && s.model.has(lookupShowsExpired) {
		e = s.model.entries[name]
	}
	if e == nil && s.model.has(lookupShowsNobody) {
		return driver.Record{Name: name}, false, nil
	}
	if e == nil {
		return driver.Record{}, false, nil
	}
	if s.model.has(lookupProlongs) {
		e.until = e.until.Add(time.Hour)
	}
	rec := s.record(e)
	if s.model.has(lookupLeaksOwner) {
		rec.Metadata = map[string]string{"owner": e.owner}
	}
	if s.model.has(overclaimsLookup) {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	return rec, true, nil
}

func (s *refStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if !s.model.claims.List && !s.model.has(underclaimsList) || s.model.has(overclaimsList) {
			yield(driver.Record{}, driver.ErrUnsupported)
			return
		}
		records, err := s.list(ctx, prefix)
		if err != nil {
			if s.silent && s.model.has(listOutlastsDeadlines) {
				time.Sleep(time.Minute)
			}
			yield(driver.Record{}, err)
			return
		}
		if s.model.has(listBlocksCalls) {
			s.dead = true
			defer func() { s.dead = false }()
		}
		for i, rec := range records {
			if !yield(rec, nil) {
				if s.model.has(brokenListHangs) {
					s.dead = true
				}
				return
			}
			if s.model.has(listYieldsTwice) && i == 0 && !yield(rec, nil) {
				return
			}
		}
	}
}

func (s *refStore) list(ctx context.Context, prefix string) ([]driver.Record, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = s.end() }()
	var records []driver.Record
	for _, key := range slices.Sorted(maps.Keys(s.model.entries)) {
		e := s.model.entries[key]
		if s.at(e.record.Name) == nil && !s.model.has(listShowsExpired) || !s.model.begins(key, prefix) {
			continue
		}
		if e.stranger && s.model.has(occupiedEndsLists) {
			return records, nil
		}
		rec := s.record(e)
		if s.model.has(listLeaksOwner) {
			rec.Holder += e.owner
		}
		if e.record.Kept && s.model.has(listHidesKept) || s.model.has(listIsCut) && len(records) == 100 {
			continue
		}
		records = append(records, rec)
	}
	return records, nil
}

// begins compares the beginning of a name with a prefix.
func (m *model) begins(name, prefix string) bool {
	switch {
	case m.has(listIgnoresPrefix):
		return true
	case m.has(listIgnoresCase):
		return strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix))
	case m.has(listTakesPatterns) && strings.HasSuffix(prefix, "%"):
		return strings.HasPrefix(name, strings.TrimSuffix(prefix, "%"))
	}
	return strings.HasPrefix(name, prefix)
}

func (s *refStore) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if !s.model.claims.Break && !s.model.has(underclaimsBreak) || s.model.has(overclaimsBreak) {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, false, err
	}
	defer func() { _ = s.end() }()
	m := s.model
	name := req.Name
	s.settle(name)
	e := s.at(name)
	if e == nil || e.record.Kept && m.has(breakSparesKept) {
		return driver.Record{}, e == nil && m.has(breakAlwaysTrue), nil
	}
	switch {
	case req.Token == 0 || m.has(breakIgnoresToken):
	case m.has(breakSparesToken):
		return driver.Record{}, false, nil
	case req.Token == s.record(e).Token:
	case m.has(breakEndsLower) && req.Token > e.record.Token:
	case m.has(breakTakesLaterTokens) && req.Token > e.record.Token && req.Token < e.record.Token+int64(e.tokens):
	case m.has(breakShowsOther):
		return s.record(e), false, nil
	default:
		return driver.Record{}, m.has(breakOtherIsTrue), nil
	}
	rec := s.record(e)
	if m.has(breakLeaksOwner) {
		rec.Holder += e.owner
	}
	if m.has(breakByPrefix) {
		for key := range m.entries {
			if strings.HasPrefix(key, name) {
				delete(m.entries, key)
			}
		}
	}
	if m.has(breakResetsToken) {
		m.last[name] = 0
	}
	if !m.has(breakDoesNothing) {
		delete(m.entries, m.key(name))
	}
	if m.has(breakEndsPlaces) {
		delete(m.places, m.key(name))
	}
	s.settle(name)
	if !m.has(breakDoesNotAsk) {
		m.ask(name, s)
	}
	return rec, true, nil
}
