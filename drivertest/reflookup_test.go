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
	case s.model.has("lookup always finds"):
		return driver.Record{Name: name}, true, nil
	case s.model.has("lookup never finds"):
		return driver.Record{}, false, nil
	case !s.model.claims.Lookup && !s.model.has("underclaims lookup"):
		return driver.Record{}, false, driver.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return driver.Record{}, false, err
	}
	defer func() { _ = s.end() }()
	e := s.at(name)
	if e == nil && s.model.has("lookup shows expired") {
		e = s.model.entries[name]
	}
	if e == nil && s.model.has("lookup shows nobody") {
		return driver.Record{Name: name}, false, nil
	}
	if e == nil {
		return driver.Record{}, false, nil
	}
	if s.model.has("lookup prolongs") {
		e.until = e.until.Add(time.Hour)
	}
	rec := s.record(e)
	if s.model.has("lookup leaks owner") {
		rec.Metadata = map[string]string{"owner": e.owner}
	}
	if s.model.has("overclaims lookup") {
		return driver.Record{}, false, driver.ErrUnsupported
	}
	return rec, true, nil
}

func (s *refStore) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if !s.model.claims.List && !s.model.has("underclaims list") || s.model.has("overclaims list") {
			yield(driver.Record{}, driver.ErrUnsupported)
			return
		}
		records, err := s.list(ctx, prefix)
		if err != nil {
			if s.silent && s.model.has("list outlasts deadlines") {
				time.Sleep(time.Minute)
			}
			yield(driver.Record{}, err)
			return
		}
		if s.model.has("list blocks calls") {
			s.dead = true
			defer func() { s.dead = false }()
		}
		for i, rec := range records {
			if !yield(rec, nil) {
				if s.model.has("broken list hangs") {
					s.dead = true
				}
				return
			}
			if s.model.has("list yields twice") && i == 0 && !yield(rec, nil) {
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
		if s.at(e.record.Name) == nil && !s.model.has("list shows expired") || !s.model.begins(key, prefix) {
			continue
		}
		if e.stranger && s.model.has("occupied ends lists") {
			return records, nil
		}
		rec := s.record(e)
		if s.model.has("list leaks owner") {
			rec.Holder += e.owner
		}
		if e.record.Kept && s.model.has("list hides kept") || s.model.has("list is cut") && len(records) == 100 {
			continue
		}
		records = append(records, rec)
	}
	return records, nil
}

// begins compares the beginning of a name with a prefix.
func (m *model) begins(name, prefix string) bool {
	switch {
	case m.has("list ignores prefix"):
		return true
	case m.has("list ignores case"):
		return strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix))
	case m.has("list takes patterns") && strings.HasSuffix(prefix, "%"):
		return strings.HasPrefix(name, strings.TrimSuffix(prefix, "%"))
	}
	return strings.HasPrefix(name, prefix)
}

func (s *refStore) Break(ctx context.Context, req driver.BreakRequest) (driver.Record, bool, error) {
	if !s.model.claims.Break && !s.model.has("underclaims break") || s.model.has("overclaims break") {
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
	if e == nil || e.record.Kept && m.has("break spares kept") {
		return driver.Record{}, e == nil && m.has("break always true"), nil
	}
	switch {
	case req.Token == 0 || m.has("break ignores token"):
	case m.has("break spares token"):
		return driver.Record{}, false, nil
	case req.Token == s.record(e).Token:
	case m.has("break ends lower") && req.Token > e.record.Token:
	case m.has("break takes later tokens") && req.Token > e.record.Token && req.Token < e.record.Token+int64(e.tokens):
	case m.has("break shows other"):
		return s.record(e), false, nil
	default:
		return driver.Record{}, m.has("break of other is true"), nil
	}
	rec := s.record(e)
	if m.has("break leaks owner") {
		rec.Holder += e.owner
	}
	if m.has("break by prefix") {
		for key := range m.entries {
			if strings.HasPrefix(key, name) {
				delete(m.entries, key)
			}
		}
	}
	if m.has("break resets token") {
		m.last[name] = 0
	}
	if !m.has("break does nothing") {
		delete(m.entries, m.key(name))
	}
	if m.has("break ends places") {
		delete(m.places, m.key(name))
	}
	s.settle(name)
	if !m.has("break does not ask") {
		m.ask(name, s)
	}
	return rec, true, nil
}
