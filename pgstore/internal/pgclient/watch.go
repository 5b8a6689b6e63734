package pgclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A Watcher signals waiters after releases. After the first wait it has one connection that listens
// for notifications. A waiter for a name leaves a mark for releasers. A releaser that sees the mark
// sends a notification. A release without waiters never sends one.
type Watcher struct {
	ctx          context.Context
	dialListener func(ctx context.Context) (Listener, error)
	running      sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	watches map[string][]chan struct{} // by name
	attempt *dialAttempt               // nil until the first watch
}

// A dialAttempt is an attempt to listen, and the connection that results from it.
type dialAttempt struct {
	done     chan struct{} // closed when the attempt has succeeded or failed
	err      error         // why it failed
	listener Listener
	replaced chan struct{} // closed when another attempt has begun
}

// A Listener is a connection that listens.
type Listener interface {
	// AddWaiterMark returns when releases of a name are notified from now on. Its error matches
	// ErrSessionLost if the connection has ended.
	AddWaiterMark(ctx context.Context, name string) error

	// RemoveWaiterMark is called when the last watch of a name has ended.
	RemoveWaiterMark(name string)

	// ListenLoop forwards notifications until the connection fails or ctx ends.
	ListenLoop(ctx context.Context)

	// Close closes the connection.
	Close()
}

// NewWatcher returns a Watcher that calls dialListener for a connection that listens, first when
// there is a watch. dialListener adds marks for the names that are watched already. ctx ends before
// Close is called.
func NewWatcher(ctx context.Context, dialListener func(context.Context) (Listener, error)) *Watcher {
	return &Watcher{ctx: ctx, dialListener: dialListener, watches: map[string][]chan struct{}{}}
}

// Watch returns a channel that is signaled after each release of a name, until ctx ends. It
// gives up on a server that hangs after ListenTimeout: ctx bounds the watch, not the wait for its
// begin.
func (w *Watcher) Watch(ctx context.Context, name string) (chan struct{}, error) {
	signal := make(chan struct{}, 1)
	w.addSignal(name, signal)
	limited, cancel := context.WithTimeout(ctx, ListenTimeout)
	defer cancel()
	if err := w.ensureWatched(limited, name); err != nil {
		w.removeSignal(name, signal)
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no watch within %v: %w", ListenTimeout, err)
		}
		return nil, err
	}
	context.AfterFunc(ctx, func() { w.removeSignal(name, signal) })
	return signal, nil
}

// ensureWatched returns when the releases of a name are notified from now on.
func (w *Watcher) ensureWatched(ctx context.Context, name string) error {
	for {
		attempt, err := w.currentAttempt()
		if err != nil {
			return err
		}
		if err := w.waitFor(ctx, attempt.done); err != nil {
			return err
		}
		if attempt.err != nil {
			return attempt.err
		}
		if err := attempt.listener.AddWaiterMark(ctx, name); !errors.Is(err, ErrSessionLost) {
			return err
		}
		if err := w.waitFor(ctx, attempt.replaced); err != nil {
			return err
		}
	}
}

func (w *Watcher) waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ctx.Done():
		return driver.ErrClosed
	}
}

// currentAttempt returns the current dial attempt, and starts the first one.
func (w *Watcher) currentAttempt() (*dialAttempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, driver.ErrClosed
	}
	if w.attempt == nil {
		w.attempt = newDialAttempt()
		w.running.Go(w.runListener)
	}
	return w.attempt, nil
}

func newDialAttempt() *dialAttempt {
	return &dialAttempt{done: make(chan struct{}), replaced: make(chan struct{})}
}

// Close ends the watches, and waits until the connection is closed. The context has ended.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

func (w *Watcher) addSignal(name string, signal chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches[name] = append(w.watches[name], signal)
}

func (w *Watcher) removeSignal(name string, signal chan struct{}) {
	w.mu.Lock()
	left := slices.DeleteFunc(w.watches[name], func(other chan struct{}) bool { return other == signal })
	var current Listener
	if len(left) > 0 {
		w.watches[name] = left
	} else {
		delete(w.watches, name)
		current = w.currentListener()
	}
	w.mu.Unlock()
	if current != nil {
		current.RemoveWaiterMark(name)
	}
}

// Listener returns the connection that listens now, or nil if there is none.
func (w *Watcher) Listener() Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.currentListener()
}

// currentListener is Listener for a caller that holds w.mu.
func (w *Watcher) currentListener() Listener {
	if w.attempt == nil {
		return nil
	}
	return w.attempt.listener
}

// WatchedNames returns the names that are watched, sorted, as marking requires.
func (w *Watcher) WatchedNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.watches))
}

// IsWatched reports whether a name has a watch.
func (w *Watcher) IsWatched(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches[name]) > 0
}

// SignalName signals the watches of a name.
func (w *Watcher) SignalName(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signal := range w.watches[name] {
		TrySignal(signal)
	}
}

// signalAll signals all watches: something may have been missed.
func (w *Watcher) signalAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signals := range w.watches {
		for _, signal := range signals {
			TrySignal(signal)
		}
	}
}

func TrySignal(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
