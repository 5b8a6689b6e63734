package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A watcher tells waiters of releases. It has one connection, once somebody has
// waited, that listens for notifications. Whoever waits for a name leaves a mark
// for those who release it; whoever sees the mark sends a notification, which
// those who are not waited for never do.
type watcher struct {
	ctx     context.Context                        // ends before close is called
	listen  func(ctx context.Context) (ear, error) // what is watched already is marked then
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	watches map[string][]chan struct{} // by name
	link    *link                      // nil until somebody watches
}

// A link is an attempt to listen, and the connection that comes of it.
type link struct {
	done chan struct{} // closed when the attempt has succeeded or failed
	err  error         // how it failed
	ear  ear
	over chan struct{} // closed when another link has begun
}

// An ear is a connection that listens.
type ear interface {
	// mark returns when releases of a name are told from now on. Its error
	// matches errSessionLost if the connection has ended.
	mark(ctx context.Context, name string) error

	// unmark is called when nobody watches a name any more.
	unmark(name string)

	// tell has all who listen told of a release, and reports whether it could.
	tell(name string) bool

	// hear passes on what is told until the connection fails or ctx ends.
	hear(ctx context.Context)

	close()
}

func (w *watcher) init(ctx context.Context, listen func(context.Context) (ear, error)) {
	w.ctx, w.listen, w.watches = ctx, listen, map[string][]chan struct{}{}
}

// watch returns a channel that is signalled after each release of a name, until
// ctx ends. A server that hangs is left to itself after listenBound: ctx says how
// long the watch is to last, not for how long its beginning may be awaited.
func (w *watcher) watch(ctx context.Context, name string) (chan struct{}, error) {
	signal := make(chan struct{}, 1)
	w.add(name, signal)
	limited, cancel := context.WithTimeout(ctx, listenBound)
	defer cancel()
	if err := w.enforce(limited, name); err != nil {
		w.remove(name, signal)
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no watch within %v: %w", listenBound, err)
		}
		return nil, err
	}
	context.AfterFunc(ctx, func() { w.remove(name, signal) })
	return signal, nil
}

// enforce returns when the releases of a name are told from now on.
func (w *watcher) enforce(ctx context.Context, name string) error {
	for {
		l, err := w.join()
		if err != nil {
			return err
		}
		if err := w.wait(ctx, l.done); err != nil {
			return err
		}
		if l.err != nil {
			return l.err
		}
		if err := l.ear.mark(ctx, name); !errors.Is(err, errSessionLost) {
			return err
		}
		if err := w.wait(ctx, l.over); err != nil {
			return err
		}
	}
}

func (w *watcher) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ctx.Done():
		return driver.ErrClosed
	}
}

// join returns the present link, and sees to it that there is one.
func (w *watcher) join() (*link, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, driver.ErrClosed
	}
	if w.link == nil {
		w.link = newLink()
		w.running.Go(w.run)
	}
	return w.link, nil
}

func newLink() *link { return &link{done: make(chan struct{}), over: make(chan struct{})} }

// close ends the watches.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

func (w *watcher) add(name string, signal chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[name] = append(w.watches[name], signal)
}

func (w *watcher) remove(name string, signal chan struct{}) {
	w.mu.Lock()
	left := slices.DeleteFunc(w.watches[name], func(other chan struct{}) bool { return other == signal })
	var listens ear
	if len(left) > 0 {
		w.watches[name] = left
	} else {
		delete(w.watches, name)
		listens = w.ear()
	}
	w.mu.Unlock()
	if listens != nil {
		listens.unmark(name)
	}
}

// ear is that of the present link, nil if there is none. The caller holds w.mu.
func (w *watcher) ear() ear {
	if w.link == nil {
		return nil
	}
	return w.link.ear
}

// tell has all who listen told of a release, if there is a connection that can.
func (w *watcher) tell(name string) bool {
	w.mu.Lock()
	listens := w.ear()
	w.mu.Unlock()
	return listens != nil && listens.tell(name)
}

// watched returns the names that are watched, sorted, as marking wants them.
func (w *watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.watches))
}

// isWatched reports whether anybody watches a name.
func (w *watcher) isWatched(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches[name]) > 0
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
