package pgclient

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// ListenTimeout bounds each step of the watcher on its connection, and the wait for a watch. The
// others bound the pauses between attempts to connect.
const (
	ListenTimeout = 5 * time.Second
	minReconnect  = 50 * time.Millisecond
	maxReconnect  = 2 * time.Second
)

// runListener listens until the store is closed, or until listening turns out to be impossible.
func (w *Watcher) runListener() {
	connectedBefore := false // there was a connection before
	for failures := 0; ; failures++ {
		current, err := w.dialWithTimeout()
		w.finishAttempt(current, err)
		if err == nil {
			if connectedBefore {
				w.signalAll() // Releases since the last connection ended were not notified.
			}
			connectedBefore, failures = true, 0
			current.ListenLoop(w.ctx)
			current.Close()
		}
		if errors.Is(err, driver.ErrUnsupported) {
			return
		}
		if err == nil {
			w.nextAttempt()
			w.signalAll()
		}
		if retry.Sleep(w.ctx, retry.Backoff(failures, minReconnect, maxReconnect)) != nil {
			return
		}
		if err != nil {
			w.nextAttempt()
		}
	}
}

func (w *Watcher) dialWithTimeout() (Listener, error) {
	ctx, cancel := context.WithTimeout(w.ctx, ListenTimeout)
	defer cancel()
	return w.dialListener(ctx)
}

// finishAttempt sets the result of the dial attempt. From then on no release is missed.
func (w *Watcher) finishAttempt(current Listener, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempt.listener, w.attempt.err = current, err
	close(w.attempt.done)
}

// nextAttempt begins another dial attempt.
func (w *Watcher) nextAttempt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.attempt.replaced)
	w.attempt = newDialAttempt()
}
