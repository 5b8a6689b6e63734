package holdfast

import "context"

// joinable reports whether an acquisition may share the hold. The caller holds
// Client.mu.
func (h *hold) joinable() bool {
	return h.reentrant && h.refs > 0 && h.end.Load() == nil
}

// drop takes a handle off, and reports whether it was the last.
func (h *hold) drop() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.refs--
	return h.refs == 0
}

// join adds a handle to a hold, and prolongs it.
func (h *hold) join(ctx context.Context) (*Lock, error) {
	c := h.c
	l := &Lock{hold: h, joined: true}
	c.mu.Lock()
	if !h.joinable() {
		c.mu.Unlock()
		return nil, ErrReleased
	}
	l.next, h.locks = h.locks, l
	h.refs++
	c.mu.Unlock()
	if err := c.extend(ctx, h.ttl, h); err != nil {
		_ = l.Release() // err says it all
		return nil, err
	}
	return l, nil
}
