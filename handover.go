package holdfast

import (
	"context"
	"fmt"
)

// HandOver gives the lock away: it returns a ticket, with which [Client.Adopt] continues the hold
// elsewhere, and ends this handle without a release. Its contexts end with [ErrHandedOver] before
// HandOver returns, renewal stops, and Release, which may be deferred as usual, does nothing. So
// the lock has one holder at any time, as long as the ticket is adopted once.
//
// The receiver of the ticket has the rest of the TTL to adopt it: [Lock.Extend] the lock first if
// that may take a while. If the ticket is not adopted, the lock is free when its TTL is over. The
// rest of MinHold stays in force, MaxHold does not.
//
// The lock must have been acquired with Options.Detached, and a reentrant one have no other
// handle, else the error is [ErrInvalid]; if it is no longer held, it is that of [Lock.Err].
// After an error nothing has changed.
func (l *Lock) HandOver() (Ticket, error) {
	ticket, err := l.makeTicket()
	if err == nil && l.lease.handleCount() > 1 {
		err = fmt.Errorf("%w: it has other handles", ErrInvalid)
	}
	if err == nil {
		err = ErrReleased
		l.releaseOnce.Do(func() {
			err = l.handOver()
			l.releaseErr = err
		})
	}
	if err != nil {
		return "", opError("hand over", l.Name(), err)
	}
	return ticket, nil
}

// handleCount returns the number of handles that are not released.
func (l *lease) handleCount() int {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.openHandles
}

// handOver ends the lease in this Client, and leaves it in the store.
func (h *handle) handOver() error {
	l := h.lease
	c := l.c
	h.removeHandle(nil)
	if l.checkHeld() == nil {
		l.endLease(&ErrHandedOver)
	}
	end := *l.endReason.Load()
	h.endContext(end)
	if end != ErrHandedOver {
		return end
	}
	l.waitIdle()
	l.unregister()
	name, held := c.stripPrefix(l.fullName), c.clock.now()-l.grantedAt
	if c.log != nil {
		c.log.DebugContext(context.Background(), "lock handed over", "name", name, "token", l.token, "held", held)
	}
	if c.hooks.Released != nil {
		c.hooks.Released(name, held, nil)
	}
	return nil
}
