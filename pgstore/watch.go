package pgstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A watcher tells waiters of releases. It has one connection, once somebody has
// waited, that listens for notifications. Whoever waits for a name leaves a mark
// in its row; whoever releases the name sees the mark and sends a notification,
// which those who are not waited for never do.
type watcher struct {
	s       *Store
	running sync.WaitGroup

	mu      sync.Mutex
	watches map[string][]chan struct{} // by name
	link    *link                      // nil until somebody watches
}

// A link is an attempt to listen, and the connection that comes of it.
type link struct {
	done chan struct{} // closed when the attempt has succeeded or failed
	err  error         // how it failed
}

// For how long a mark is good, and how often the watcher makes those anew that
// are still needed. A mark is left alone until half of its time is over.
const (
	markFor   = 60 * time.Second
	markEvery = 20 * time.Second
)

func (w *watcher) init(s *Store) {
	w.s, w.watches = s, map[string][]chan struct{}{}
}

// Watch implements [driver.Watcher]. It returns [driver.ErrUnsupported] if the
// pool's connections lead to a pooler, where nobody can listen.
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if !s.can.Push {
		return nil, driver.ErrUnsupported
	}
	w := &s.watcher
	signal := make(chan struct{}, 1)
	w.add(name, signal)
	if err := w.enforce(ctx, name); err != nil {
		w.remove(name, signal)
		return nil, err
	}
	context.AfterFunc(ctx, func() { w.remove(name, signal) })
	return signal, nil
}

// enforce returns when the releases of a name are told from now on.
func (w *watcher) enforce(ctx context.Context, name string) error {
	link, err := w.listen()
	if err != nil {
		return err
	}
	select {
	case <-link.done:
		if link.err != nil {
			return link.err
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-w.s.ctx.Done():
		return driver.ErrClosed
	}
	return w.s.exec(ctx, w.s.text.await, markOf(name)...)
}

// markOf returns the arguments of the statement that marks names.
func markOf(names ...string) []any { return []any{array(names), micros(markFor)} }

// listen returns the present link, and sees to it that there is one.
func (w *watcher) listen() (*link, error) {
	w.s.mu.Lock() // Close sets closed before it waits for what is running.
	defer w.s.mu.Unlock()
	if w.s.closed {
		return nil, driver.ErrClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.link == nil {
		w.link = &link{done: make(chan struct{})}
		w.running.Go(w.run)
	}
	return w.link, nil
}

func (w *watcher) add(name string, signal chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[name] = append(w.watches[name], signal)
}

func (w *watcher) remove(name string, signal chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.watches[name], func(other chan struct{}) bool { return other == signal })
	if len(left) == 0 {
		delete(w.watches, name)
		return
	}
	w.watches[name] = left
}

// watched returns the names that are watched, sorted, as marking wants them.
func (w *watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.watches))
}

// wake signals the watches of a name.
func (w *watcher) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signal := range w.watches[name] {
		poke(signal)
	}
}

// wakeAll signals all watches: something may have been missed.
func (w *watcher) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signals := range w.watches {
		for _, signal := range signals {
			poke(signal)
		}
	}
}

func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
