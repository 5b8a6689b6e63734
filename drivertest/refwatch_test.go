package drivertest

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = s.end() }()
	m := s.model
	if m.has(overclaimsPush) {
		return nil, driver.ErrUnsupported
	}
	m.number++
	watch := &modelWatch{number: m.number, name: name, by: s, signals: make(chan struct{}, 1)}
	if m.has(watchStartsLate) {
		time.AfterFunc(time.Millisecond, func() { m.add(watch) })
	} else if m.entries[name] != nil || !m.has(watchNeedsName) {
		m.watches[watch] = true
	}
	context.AfterFunc(ctx, func() { m.unwatch(watch) })
	if m.has(watchLeaks) {
		go func() { <-ctx.Done(); time.Sleep(30 * time.Second) }()
	}
	return watch.signals, nil
}

func (m *model) add(watch *modelWatch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches[watch] = true
}

func (m *model) unwatch(watch *modelWatch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watches, watch)
	for other := range m.watches {
		if m.has(endOfOneEndsAll) && other.name == watch.name && other.number < watch.number {
			delete(m.watches, other)
		}
	}
	if m.has(watchCloses) {
		close(watch.signals)
	}
}

func (s *refStore) Guarantees() driver.Guarantees {
	g := s.model.claims
	if s.model.has(guaranteesVague) {
		g.Scope, g.Store = 0, ""
	}
	if s.model.has(guaranteesChange) {
		g.Fair = s.model.dropped > 0
	}
	return g
}

func (s *refStore) Close() error {
	m := s.model
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.closed && m.has(closeFailsTwice) {
		return driver.ErrClosed
	}
	s.closed = true
	m.broken = m.has(closeBreaksWorld)
	for name, e := range m.entries {
		if m.has(closeEndsAllHolds) || m.has(closeEndsDetached) && e.detached && e.takenBy == s {
			delete(m.entries, name)
		}
	}
	return nil
}
