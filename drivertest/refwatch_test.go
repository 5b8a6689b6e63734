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
	w := s.w
	if w.has(overclaimsPush) {
		return nil, driver.ErrUnsupported
	}
	w.number++
	watch := &watched{number: w.number, name: name, by: s, signals: make(chan struct{}, 1)}
	if w.has(watchStartsLate) {
		time.AfterFunc(time.Millisecond, func() { w.add(watch) })
	} else if w.entries[name] != nil || !w.has(watchNeedsName) {
		w.watches[watch] = true
	}
	context.AfterFunc(ctx, func() { w.unwatch(watch) })
	if w.has(watchLeaks) {
		go func() { <-ctx.Done(); time.Sleep(30 * time.Second) }()
	}
	return watch.signals, nil
}

func (w *world) add(watch *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[watch] = true
}

func (w *world) unwatch(watch *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, watch)
	for other := range w.watches {
		if w.has(endOfOneEndsAll) && other.name == watch.name && other.number < watch.number {
			delete(w.watches, other)
		}
	}
	if w.has(watchCloses) {
		close(watch.signals)
	}
}

func (s *refStore) Guarantees() driver.Guarantees {
	g := s.w.claims
	if s.w.has(guaranteesVague) {
		g.Scope, g.Store = 0, ""
	}
	if s.w.has(guaranteesChange) {
		g.Fair = s.w.dropped > 0
	}
	return g
}

func (s *refStore) Close() error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.closed && w.has(closeFailsTwice) {
		return driver.ErrClosed
	}
	s.closed = true
	w.broken = w.has(closeBreaksWorld)
	for name, e := range w.entries {
		if w.has(closeEndsAllHolds) || w.has(closeEndsDetached) && e.detached && e.takenBy == s {
			delete(w.entries, name)
		}
	}
	return nil
}
