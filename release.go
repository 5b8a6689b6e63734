package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// release ends the hold and gives it back to the store, once.
func (h *hold) release() error {
	h.releasing.Do(func() { h.released = h.doRelease() })
	return h.released
}

// doRelease is for holds that were looked at by err just before.
func (h *hold) doRelease() error {
	h.over(&ErrReleased)
	switch end := *h.end.Load(); end {
	case ErrReleased:
		return h.surrender()
	case ErrHandedOver:
		return nil
	default:
		if !h.isShared() {
			h.abandon()
		}
		return end
	}
}

// undo ends a hold as if it had never been: without MinHold.
func (h *hold) undo() {
	h.releasing.Do(func() {
		h.undone.Store(true)
		if h.err() == nil {
			h.over(&errGivenUp)
		}
		if errors.Is(*h.end.Load(), ErrLost) {
			h.abandon()
		} else {
			_ = h.surrender() // if it fails, it is tried on in the background
		}
	})
}

// surrender gives back a hold whose holder has ended it.
func (h *hold) surrender() error {
	h.grounded()
	err := h.giveBack()
	h.leave()
	h.gone(err)
	return err
}

// isShared reports whether others may have the hold as well, by a ticket. What
// is lost here may not be lost there.
func (h *hold) isShared() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.shared
}

// gone tells hooks and log of a release.
func (h *hold) gone(err error) {
	c := h.c
	if c.log == nil && c.hooks.Released == nil {
		return
	}
	name, held := c.strip(h.full), c.clock.now()-h.began
	if err != nil {
		c.warn(context.Background(), "release not confirmed", name, err)
	} else if c.log != nil {
		c.log.Debug("lock released", "name", name, "token", h.token, "held", held)
	}
	if c.hooks.Released != nil {
		c.hooks.Released(name, held, err)
	}
}

// giveBack tells the store until it has understood, or the bound is reached:
// then it goes on in the background.
func (h *hold) giveBack() error {
	c := h.c
	var began time.Duration
	for n := 0; ; n++ {
		ours, err := h.sendRelease()
		if err == nil && !ours && n == 0 {
			return &LostError{Name: c.strip(h.full), Token: h.token, Reason: ErrTaken}
		}
		if err == nil {
			return nil // had it not been ours, an earlier attempt has freed it
		}
		if driver.Permanent(err) {
			return failed("release", c.strip(h.full), err)
		}
		if n == 0 {
			began = c.clock.now()
		}
		if c.clock.now()-began >= c.timeout {
			h.abandon()
			return failed("release", c.strip(h.full), storeError(context.Background(), err))
		}
		time.Sleep(c.backoff.pause(n))
	}
}

// abandon goes on telling the store in the background that the hold is over,
// unless the store knows. It gives up when the store must have freed the name
// anyhow, or the Client is closed.
func (h *hold) abandon() {
	end := *h.end.Load()
	if errors.Is(end, ErrTaken) || errors.Is(end, ErrBroken) || h.c.begin() != nil {
		return
	}
	go func() {
		defer h.c.active.Done()
		h.disown()
	}()
}

// disown sends releases until one is answered.
func (h *hold) disown() {
	c := h.c
	h.grounded()
	until := c.clock.now() + h.ttl
	for n := 0; ; n++ {
		_, err := h.sendRelease()
		if err == nil || driver.Permanent(err) || c.clock.now() >= until {
			return
		}
		timer := time.NewTimer(c.backoff.pause(n))
		select {
		case <-timer.C:
		case <-c.closing:
			timer.Stop()
			return
		}
	}
}

// sendRelease makes one attempt to give the hold back, keeping the name taken
// for what is left of MinHold.
func (h *hold) sendRelease() (bool, error) {
	c := h.c
	req := driver.ReleaseRequest{Name: h.full, Owner: h.owner}
	if h.minHold > 0 && !h.undone.Load() {
		if keep := h.began + h.minHold - c.clock.now(); keep > 0 {
			req.Keep = min(max(keep, driver.MinTTL), driver.MaxTTL)
		}
	}
	if c.inline {
		return c.store.Release(context.Background(), req)
	}
	if c.can.Blocking != driver.BlocksForLong {
		return askHere(context.Background(), c.timeout, func(ctx context.Context) (bool, error) {
			return c.store.Release(ctx, req)
		})
	}
	return h.releaseAside(req)
}

func (h *hold) releaseAside(req driver.ReleaseRequest) (bool, error) {
	return askAside(h.c, context.Background(), h.c.timeout, nil, func(ctx context.Context) (bool, error) {
		return h.c.store.Release(ctx, req)
	})
}
