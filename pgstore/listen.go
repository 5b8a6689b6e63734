package pgstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The bounds of what the watcher does with its connection, and for how long a
// watch is awaited; and the pauses between attempts to make a connection.
const (
	listenBound  = 5 * time.Second
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// run listens until the store is closed, or until it turns out that nobody can.
func (w *watcher) run() {
	heard := false // there was a connection before
	for failures := 0; ; failures++ {
		listens, err := w.connect()
		w.settle(listens, err)
		if err == nil {
			if heard {
				w.wakeAll() // What was released since the last one has ended was not told.
			}
			heard, failures = true, 0
			listens.hear(w.ctx)
			listens.close()
		}
		if errors.Is(err, driver.ErrUnsupported) {
			return
		}
		if err == nil {
			w.reset()
			w.wakeAll()
		}
		if !sleep(w.ctx, reconnectPause(failures)) {
			return
		}
		if err != nil {
			w.reset()
		}
	}
}

func reconnectPause(failures int) time.Duration {
	pause := min(minReconnect<<min(failures, 10), maxReconnect)
	return pause/2 + rand.N(pause/2)
}

func (w *watcher) connect() (ear, error) {
	ctx, cancel := context.WithTimeout(w.ctx, listenBound)
	defer cancel()
	return w.listen(ctx)
}

// settle tells those who wait for the link what has become of it. From then on
// no release is missed.
func (w *watcher) settle(listens ear, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link.ear, w.link.err = listens, err
	close(w.link.done)
}

// reset begins another link.
func (w *watcher) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.link.over)
	w.link = newLink()
}

// notifyStatement tells those who listen on a channel that something was released.
// It comes after the release: a commit that notifies holds up all other commits
// of the server that do. It does not wait for the disk.
const notifyStatement = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)"

// notify tells it by way of the pool.
func notify(p pool, plain bool, channel, payload string) {
	ctx, cancel := context.WithTimeout(context.Background(), notifyBound)
	defer cancel()
	c, err := p.take(ctx)
	if err != nil {
		return // Those who wait try again by themselves.
	}
	defer c.free()
	_ = c.query(ctx, plain, notifyStatement, []any{channel, payload}, func(scanner) error { return nil }) // As above.
}

// notifyBound is for how long a release may take to be told.
const notifyBound = 2 * time.Second

// sleep reports whether the time has passed and ctx has not ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
