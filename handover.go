package holdfast

import (
	"context"
	"fmt"
)

// HandOver gives the lock away: it returns a ticket, by which [Client.Adopt] goes
// on with the hold elsewhere, and this handle forgets it without a release. Its
// contexts end with [ErrHandedOver] before HandOver returns, nothing is renewed
// any more, and Release, which may be deferred as ever, does nothing. So the
// lock has one holder at any time, as long as the ticket is adopted once.
//
// Who gets the ticket has what is left of the TTL to adopt it: [Lock.Extend] the
// lock first if that may take a while. If nobody does, the lock is free when
// its TTL is over. What is left of MinHold goes along, MaxHold does not.
//
// The lock must have been acquired with Options.Detached, and a reentrant one
// have no other handle, else the error is [ErrInvalid]; if it is no longer held,
// it is that of [Lock.Err]. After an error nothing has changed.
func (l *Lock) HandOver() (Ticket, error) {
	ticket, err := l.ticket()
	if err == nil && l.hold.handles() > 1 {
		err = fmt.Errorf("%w: it has other handles", ErrInvalid)
	}
	if err == nil {
		err = ErrReleased
		l.once.Do(func() {
			err = l.hold.handOver()
			l.result = err
		})
	}
	if err != nil {
		return "", failed("hand over", l.Name(), err)
	}
	return ticket, nil
}

func (h *hold) handles() int {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.refs
}

// handOver ends the hold here and nowhere else.
func (h *hold) handOver() error {
	c := h.c
	h.drop()
	if h.err() == nil {
		h.over(&ErrHandedOver)
	}
	if end := *h.end.Load(); end != ErrHandedOver {
		return end
	}
	h.grounded()
	h.leave()
	name, held := c.strip(h.full), c.clock.now()-h.began
	if c.log != nil {
		c.log.DebugContext(context.Background(), "lock handed over", "name", name, "token", h.token, "held", held)
	}
	if c.hooks.Released != nil {
		c.hooks.Released(name, held, nil)
	}
	return nil
}
