package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A vigil is the waiting for a name that is held: for word from the store, for
// the end of the hold, and for pauses.
type vigil struct {
	c       *Client
	ctx     context.Context
	full    string
	wake    <-chan struct{} // from the store, nil if it does not wake
	unwatch context.CancelFunc
	asked   bool // for wake-ups
	pauses  int
}

// watch asks the store for wake-ups, once, and reports whether they are now in
// force.
func (v *vigil) watch() bool {
	if v.asked {
		return false
	}
	v.asked = true
	watcher, ok := v.c.store.(driver.Watcher)
	if !ok || !v.c.can.Push {
		return false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.ctx))
	wake, err := v.askFor(ctx, watcher)
	if err != nil {
		cancel()
		v.c.warn(v.ctx, "no wake-ups, trying at intervals", v.c.strip(v.full), err)
		return false
	}
	v.wake, v.unwatch = wake, cancel
	return true
}

// askFor asks for wake-ups until ctx ends. That says nothing of how long the
// answer may take, and the store knows of no other bound: whatever it claims of
// itself, it is asked in another goroutine, unless it never blocks.
func (v *vigil) askFor(ctx context.Context, watcher driver.Watcher) (<-chan struct{}, error) {
	full := v.full
	if v.c.inline {
		return watcher.Watch(ctx, full)
	}
	return askAside(v.c, v.ctx, v.c.timeout, nil, func(context.Context) (<-chan struct{}, error) {
		return watcher.Watch(ctx, full)
	})
}

// wait returns when it is time to try again, given how long the hold has left
// (0 if unknown). It returns an error if the waiting is over.
func (v *vigil) wait(remaining time.Duration) error {
	pause := v.c.backoff.pause(v.pauses)
	if v.wake != nil {
		pause = jitter(v.c.backoff.Watched)
	}
	v.pauses++
	if remaining > 0 {
		// Just after the end of the hold, each waiter at a moment of its own.
		pause = min(pause, remaining+time.Millisecond+jitter(4*time.Millisecond))
	}
	return v.sleep(pause)
}

// pause waits for a store that has failed.
func (v *vigil) pause() error {
	v.pauses++
	return v.sleep(v.c.backoff.pause(v.pauses))
}

func (v *vigil) sleep(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-v.wake:
		return nil
	case <-timer.C:
		return nil
	case <-v.ctx.Done():
		return v.ctx.Err()
	case <-v.c.closing:
		return ErrClosed
	}
}

func (v *vigil) end() {
	if v.unwatch != nil {
		v.unwatch()
	}
}
