package drivertest

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Lookup(ctx context.Context, name string) (driver.Record, bool, error) {
	if !s.w.claims.Lookup && !s.w.has(underclaimsLookup) {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, false, err
	}
	defer func() { _ = s.end() }()
	e := s.at(name)
	if e == nil && s.w.has(lookupShowsExpired) {
		e = s.w.entries[name]
	}
	if e == nil && s.w.has(lookupShowsNobody) {
		return driver.Record{Name: name}, false, nil
	}
	if e == nil {
		return driver.Record{}, false, nil
	}
	if s.w.has(lookupProlongs) {
		e.until = e.until.Add(time.Hour)
	}
	rec := s.record(e)
	if s.w.has(lookupLeaksOwner) {
		rec.Metadata = map[string]string{"owner": e.owner}
	}
	if s.w.has(overclaimsLookup) {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	return rec, true, nil
}

func (s *refStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if !s.w.claims.List && !s.w.has(underclaimsList) || s.w.has(overclaimsList) {
			yield(driver.Record{}, driver.ErrUnsupported)
			return
		}
		records, err := s.list(ctx, prefix)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		if s.w.has(listBlocksCalls) {
			s.dead = true
			defer func() { s.dead = false }()
		}
		for i, rec := range records {
			if !yield(rec, nil) {
				if s.w.has(brokenListHangs) {
					s.dead = true
				}
				return
			}
			if s.w.has(listYieldsTwice) && i == 0 && !yield(rec, nil) {
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
	for key, e := range s.w.entries {
		if s.at(e.record.Name) == nil && !s.w.has(listShowsExpired) || !s.w.begins(key, prefix) {
			continue
		}
		rec := s.record(e)
		if s.w.has(listLeaksOwner) {
			rec.Holder += e.owner
		}
		if e.record.Kept && s.w.has(listHidesKept) || s.w.has(listIsCut) && len(records) == 100 {
			continue
		}
		records = append(records, rec)
	}
	return records, nil
}

// begins compares the beginning of a name with a prefix.
func (w *world) begins(name, prefix string) bool {
	switch {
	case w.has(listIgnoresPrefix):
		return true
	case w.has(listIgnoresCase):
		return strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix))
	case w.has(listTakesPatterns) && strings.HasSuffix(prefix, "%"):
		return strings.HasPrefix(name, strings.TrimSuffix(prefix, "%"))
	}
	return strings.HasPrefix(name, prefix)
}

func (s *refStore) Break(ctx context.Context, name string) (driver.Record, bool, error) {
	if !s.w.claims.Break && !s.w.has(underclaimsBreak) || s.w.has(overclaimsBreak) {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, false, err
	}
	defer func() { _ = s.end() }()
	w := s.w
	e := s.at(name)
	if e == nil || e.record.Kept && w.has(breakSparesKept) {
		return driver.Record{}, e == nil && w.has(breakAlwaysTrue), nil
	}
	rec := s.record(e)
	if w.has(breakLeaksOwner) {
		rec.Holder += e.owner
	}
	if w.has(breakByPrefix) {
		for key := range w.entries {
			if strings.HasPrefix(key, name) {
				delete(w.entries, key)
			}
		}
	}
	if w.has(breakResetsToken) {
		w.last[name] = 0
	}
	if !w.has(breakDoesNothing) {
		delete(w.entries, w.key(name))
	}
	if !w.has(breakDoesNotWake) {
		w.wake(name, s)
	}
	return rec, true, nil
}
