package advisory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A watcher signals waiters after releases. After the first wait it has one connection that listens
// for notifications. A waiter for a name leaves a mark for releasers. A releaser that sees the mark
// sends a notification. A release without waiters never sends one.
type watcher struct {
	ctx     context.Context // ends before close is called
	dial    func(context.Context) (*markListener, error)
	running sync.WaitGroup

	mu      sync.Mutex
	watches map[string][]chan struct{} // by name
	attempt *dialAttempt               // nil until the first watch
}

// A dialAttempt is an attempt to listen, and the connection that results from it.
type dialAttempt struct {
	done     chan struct{} // closed when the attempt has succeeded or failed
	err      error         // why it failed
	listener *markListener
	replaced chan struct{} // closed when another attempt has begun
}

// newWatcher returns a watcher that calls dial for a connection that listens, first when there is a
// watch. dial adds marks for the names that are watched already.
func newWatcher(ctx context.Context, dial func(context.Context) (*markListener, error)) *watcher {
	return &watcher{ctx: ctx, dial: dial, watches: map[string][]chan struct{}{}}
}

// watch returns a channel that is signaled after each release of a name, until ctx ends. It gives
// up on a server that hangs after pgclient.ListenTimeout: ctx bounds the watch, not the wait for
// its begin. ctx ends when that of the watcher does.
func (w *watcher) watch(ctx context.Context, name string) (chan struct{}, error) {
	signal := make(chan struct{}, 1)
	w.mu.Lock()
	w.watches[name] = append(w.watches[name], signal)
	w.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, pgclient.ListenTimeout)
	defer cancel()
	if err := w.ensureWatched(limited, name); err != nil {
		w.removeSignal(name, signal)
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no watch within %v: %w", pgclient.ListenTimeout, err)
		}
		return nil, err
	}
	context.AfterFunc(ctx, func() { w.removeSignal(name, signal) })
	return signal, nil
}

// ensureWatched returns when the releases of a name are notified from now on.
func (w *watcher) ensureWatched(ctx context.Context, name string) error {
	for {
		attempt, err := w.currentAttempt()
		if err != nil {
			return err
		}
		if err := waitUntilDone(ctx, attempt.done); err != nil {
			return err
		}
		if attempt.err != nil {
			return attempt.err
		}
		if err := attempt.listener.addWaiterMark(ctx, name); !errors.Is(err, errSessionLost) {
			return err
		}
		if err := waitUntilDone(ctx, attempt.replaced); err != nil {
			return err
		}
	}
}

// currentAttempt returns the current dial attempt, and starts the first one.
func (w *watcher) currentAttempt() (*dialAttempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	if w.attempt == nil {
		w.attempt = newDialAttempt()
		w.running.Go(w.listen)
	}
	return w.attempt, nil
}

func newDialAttempt() *dialAttempt {
	return &dialAttempt{done: make(chan struct{}), replaced: make(chan struct{})}
}

// listen listens until the store is closed, or until listening turns out to be impossible.
func (w *watcher) listen() {
	connectedBefore := false // there was a connection before
	for failures := 0; ; failures++ {
		ctx, cancel := context.WithTimeout(w.ctx, pgclient.ListenTimeout)
		current, err := w.dial(ctx)
		cancel()
		w.mu.Lock()
		w.attempt.listener, w.attempt.err = current, err
		close(w.attempt.done) // From now on no release is missed.
		w.mu.Unlock()
		if err == nil {
			if connectedBefore {
				w.signalAll() // Releases since the last connection ended were not notified.
			}
			connectedBefore, failures = true, 0
			current.listenLoop(w.ctx)
			current.close()
		}
		if errors.Is(err, driver.ErrUnsupported) {
			return
		}
		if err == nil {
			w.nextAttempt()
			w.signalAll()
		}
		if pgclient.PauseBeforeReconnect(w.ctx, failures) != nil {
			return
		}
		if err != nil {
			w.nextAttempt()
		}
	}
}

// nextAttempt begins another dial attempt.
func (w *watcher) nextAttempt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.attempt.replaced)
	w.attempt = newDialAttempt()
}

// close waits until the connection is closed. The context has ended, and with it the watches.
func (w *watcher) close() {
	w.mu.Lock()
	started := w.attempt != nil // No attempt is started from now on.
	w.mu.Unlock()
	if started {
		w.running.Wait()
	}
}

func (w *watcher) removeSignal(name string, signal chan struct{}) {
	w.mu.Lock()
	left := slices.DeleteFunc(w.watches[name], func(other chan struct{}) bool { return other == signal })
	var current *markListener
	if len(left) > 0 {
		w.watches[name] = left
	} else {
		delete(w.watches, name)
		if w.attempt != nil {
			current = w.attempt.listener
		}
	}
	w.mu.Unlock()
	if current != nil {
		current.removeWaiterMark(name)
	}
}

// listener returns the connection that listens now, or nil if there is none.
func (w *watcher) listener() *markListener {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempt == nil {
		return nil
	}
	return w.attempt.listener
}

// watchedNames returns the names that are watched, sorted, as marking requires.
func (w *watcher) watchedNames() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.watches))
}

// isWatched reports whether a name has a watch.
func (w *watcher) isWatched(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches[name]) > 0
}

// signalName signals the watches of a name.
func (w *watcher) signalName(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	trySignal(w.watches[name]...)
}

// signalAll signals all watches: a notification may have been missed.
func (w *watcher) signalAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, signals := range w.watches {
		trySignal(signals...)
	}
}

// trySignal signals channels that have room for one signal.
func trySignal(signals ...chan struct{}) {
	for _, signal := range signals {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}
