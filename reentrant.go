package holdfast

import "time"

// joinable reports whether an acquisition may share the lease. The caller holds Client.mu.
func (l *lease) joinable() bool {
	return l.reentrant && l.openHandles > 0 && l.endReason.Load() == nil
}

// removeHandle removes a handle from its lease. It reports whether the handle was the last, which
// stays in the list. If end is not nil, the last handle ends the lease, for that reason.
func (h *handle) removeHandle(end *error) bool {
	l := h.lease
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.openHandles--
	if l.openHandles == 0 {
		if end != nil {
			l.endLocked(end)
		}
		return true
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.handles = h.next
	}
	h.next, h.prev = nil, nil
	return false
}

// joinLease adds a handle to a lease, and extends it. It keeps trying while the store fails, as
// an acquisition does, for as long as the lease itself lasts.
func (a *acquireOp) joinLease(l *lease) (*Lock, error) {
	c := l.c
	h := &handle{lease: l, joined: true, lockContext: lockContext{valuesCtx: a.ctx}}
	c.mu.Lock()
	if !l.joinable() {
		c.mu.Unlock()
		return nil, ErrReleased
	}
	h.next, l.handles.prev, l.handles = l.handles, h, h
	l.openHandles++
	c.mu.Unlock()
	w := retryWaiter{c: c, ctx: a.ctx, fullName: l.fullName}
	budget := outageBudget{c: c, name: a.name, singleAttempt: a.singleAttempt, hasAnswered: true}
	for {
		sent := c.clock.now()
		if a.startedAt == 0 {
			a.startedAt = sent
		}
		err := c.extendLeases(a.ctx, l.ttl, l)
		if err == nil {
			return h.newLock(), nil
		}
		if l.endReason.Load() == nil {
			if a.ctx.Err() == nil {
				a.lastErr = err
			}
			var after time.Duration
			if after, err = budget.retryDelay(a.ctx, sent, err); err == nil {
				err = w.waitOutage(after)
			}
		}
		if err != nil {
			_ = (&Lock{h}).Release() // the caller gets err
			return nil, err
		}
	}
}
