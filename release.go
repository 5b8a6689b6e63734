package holdfast

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// checkHeld returns nil while the lock is held, and then the reason of its end. It reads the
// clock, and so does not depend on the scheduler; it marks the lease as lost if the deadline has
// passed.
func (l *lease) checkHeld() error {
	if end := l.endReason.Load(); end != nil {
		return *end
	}
	now := l.c.clock.now()
	if now < time.Duration(l.deadline.Load()) {
		return nil
	}
	reason := ErrExpired
	if end := l.maxHoldEnd(); end > 0 && now >= end {
		reason = ErrMaxHold
	}
	l.markLost(reason)
	return *l.endReason.Load()
}

// markLost ends a lease that its holder has not released.
func (l *lease) markLost(reason error) {
	c := l.c
	lost := error(&LostError{Name: c.stripPrefix(l.fullName), Token: l.token, Reason: reason})
	c.mu.Lock()
	held := l.endReason.Load() == nil
	if held { // Close has not ended it yet, and will wait for the hooks.
		c.activeCalls.Add(1)
		defer c.activeCalls.Done()
	}
	c.mu.Unlock()
	if !held || !l.endLease(&lost) {
		return
	}
	l.unregister()
	c.logWarning(context.Background(), "lock lost", c.stripPrefix(l.fullName), lost)
	l.emitEnd(Event{Kind: EventLost, Err: lost})
}

// endLease ends the lease and the contexts of its handles. Only the first call has an effect and
// returns true.
func (l *lease) endLease(end *error) bool {
	c := l.c
	c.mu.Lock()
	if !l.endLocked(end) {
		c.mu.Unlock()
		return false
	}
	handles := append(make([]*handle, 0, 1), l.handles...)
	c.mu.Unlock()
	for _, h := range handles {
		h.endContext(*end)
	}
	return true
}

// endLocked ends the lease, but not the contexts of its handles. The caller holds Client.mu.
func (l *lease) endLocked(end *error) bool {
	if l.endReason.Load() != nil {
		return false
	}
	l.endReason.Store(end)
	l.c.schedule.remove(l)
	return true
}

// release releases the handle, and the lease with the last handle.
func (h *handle) release() error {
	l := h.lease
	end := l.checkHeld()
	l.c.mu.Lock()
	l.openHandles--
	last := l.openHandles == 0
	if last {
		l.endLocked(&ErrReleased)
	} else {
		l.handles = slices.DeleteFunc(l.handles, func(other *handle) bool { return other == h })
	}
	l.c.mu.Unlock()
	h.endContext(ErrReleased)
	if !last {
		return end
	}
	return l.release()
}

// release releases a lease that has ended, once. If it was lost, the store is not to be relied on,
// and gets a release in the background, unless other processes may still have it by a ticket.
func (l *lease) release() error {
	l.releaseOnce.Do(func() {
		end := *l.endReason.Load()
		if errors.Is(end, ErrLost) {
			if l.adoptedFrom == nil {
				l.releaseAsync()
			}
			l.releaseErr = end
			return
		}
		l.endHold(end)
	})
	return l.releaseErr
}

// endHold passes the lease on, or releases it to the store, unless it was handed over. It reports the
// end to the log and the hooks.
func (l *lease) endHold(end error) {
	c := l.c
	if c.hooks.Event != nil && c.beginCall() == nil { // Close waits for the hooks.
		defer c.activeCalls.Done()
	}
	began := c.clock.now()
	keep := time.Duration(l.keepUntil.Load()) - began
	if end == ErrHandedOver {
		l.waitIdle()
		l.unregister()
	} else if !l.passOn() {
		l.waitIdle()
		l.releaseErr = l.releaseWithRetry()
		l.unregister()
	}
	if c.log == nil && c.hooks.Event == nil {
		return
	}
	name, now, message := c.stripPrefix(l.fullName), c.clock.now(), "lock released"
	event := Event{Kind: EventReleased, Took: now - began, Err: l.releaseErr}
	switch {
	case end == ErrHandedOver:
		message, event.Kind = "lock handed over", EventHandedOver
	case errors.Is(l.releaseErr, ErrLost):
		event.Kind = EventLost
	case keep > 0:
		event.Kind, event.Left = EventKept, keep
	}
	switch {
	case !l.first.lockReturned.Load(): // No caller has got a Lock of it.
	case l.releaseErr != nil:
		c.logWarning(context.Background(), "release not confirmed", name, l.releaseErr)
	case c.log != nil:
		c.log.Debug(message, "name", name, "token", l.token, "held", now-l.grantedAt)
	}
	l.emitEnd(event)
}

// releaseWithRetry sends releases until the store has confirmed one. After the request timeout it
// returns, and the release goes on in the background.
func (l *lease) releaseWithRetry() error {
	c := l.c
	var began time.Duration
	applied := false // an earlier attempt may have been applied
	for n := 0; ; n++ {
		ours, err := l.sendRelease()
		if err == nil && !ours && (!applied || time.Duration(l.keepUntil.Load()) > c.clock.now()) {
			return &LostError{Name: c.stripPrefix(l.fullName), Token: l.token, Reason: ErrTaken}
		}
		if err == nil {
			return nil // An earlier attempt may have released it. A name that it keeps is reported as ours.
		}
		applied = applied || !driver.IsNotApplied(err)
		if driver.Permanent(err) {
			return opError("release", c.stripPrefix(l.fullName), err)
		}
		if n == 0 {
			began = c.clock.now()
		}
		err = storeError(context.Background(), err)
		if l.head != nil {
			c.recordAnswer(l.head, err)
		}
		left := c.requestTimeout - (c.clock.now() - began)
		if left <= 0 {
			l.releaseAsync()
			return opError("release", c.stripPrefix(l.fullName), err)
		}
		time.Sleep(min(c.backoff.nthDelay(n), left))
	}
}

// releaseAsync sends releases in the background, unless the store no longer has the lease. It
// stops when the store must have freed the name in any case, or the Client is closed.
func (l *lease) releaseAsync() {
	end := *l.endReason.Load()
	if errors.Is(end, ErrTaken) || errors.Is(end, ErrBroken) || l.c.beginCall() != nil {
		return
	}
	go func() {
		defer l.c.activeCalls.Done()
		l.releaseUntilExpired(false)
	}()
}

// releaseUntilExpired sends releases until one is answered, or the store must have freed the name
// in any case. It also stops at a permanent error and when the Client is closed. If the lease is
// that of the queue's head, it records the answers for the waiters.
func (l *lease) releaseUntilExpired(isHead bool) {
	c := l.c
	l.waitIdle()
	for n := 0; ; n++ {
		_, err := l.sendRelease()
		if err == nil || driver.Permanent(err) || c.clock.now() >= time.Duration(l.latestExpiry.Load())+c.guarantees.Grain {
			return
		}
		if isHead {
			c.recordAnswer(l.head, storeError(context.Background(), err))
		}
		timer := time.NewTimer(c.backoff.nthDelay(n))
		select {
		case <-timer.C:
		case <-c.closing:
			timer.Stop()
			return
		}
	}
}

// sendRelease makes one attempt to release the lease.
func (l *lease) sendRelease() (bool, error) {
	c := l.c
	req := driver.ReleaseRequest{Name: l.fullName, Owner: l.owner}
	if keep := time.Duration(l.keepUntil.Load()) - c.clock.now(); keep > 0 {
		req.Keep = min(max(keep, driver.MinTTL), driver.MaxTTL)
	}
	return request(c, context.Background(), "release", c.requestTimeout, func(ctx context.Context) (bool, error) {
		return c.store.Release(ctx, req)
	})
}

// registeredWork returns a channel for each piece of work that Do runs under the lease. It is
// closed when the work has returned.
func (l *lease) registeredWork() []<-chan struct{} {
	l.c.mu.Lock()
	handles := slices.Clone(l.handles)
	l.c.mu.Unlock()
	var work []<-chan struct{}
	for _, h := range handles {
		if done := h.registeredWork(); done != nil {
			work = append(work, done)
		}
	}
	return work
}

// setAwaitingWork records whether the release of the lease, which has ended, waits for work.
func (l *lease) setAwaitingWork(awaiting bool) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.awaitingWork = awaiting
}

// waitForWork waits until work has returned, but not beyond the deadline of the lease. The
// renewal of the lease has ended.
func (l *lease) waitForWork(work []<-chan struct{}) {
	c := l.c
	for _, done := range work {
		for open := true; open; {
			left := time.Duration(l.deadline.Load()) - c.clock.now()
			if left <= 0 {
				if c.log != nil {
					c.log.Warn("released, though work under the lock has not returned",
						"name", c.stripPrefix(l.fullName), "token", l.token)
				}
				return
			}
			timer := time.NewTimer(min(left, suspendCheck))
			select {
			case <-done:
				open = false
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// unregister takes a lease that has ended from the Client, and admits the next waiter.
func (l *lease) unregister() {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unqueued, l)
	if l.head != nil {
		c.admitNext(l.head)
	}
}
