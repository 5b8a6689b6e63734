package holdfast

import "context"

// joinable reports whether an acquisition may share the hold. The caller holds
// Client.mu.
func (h *hold) joinable() bool {
	return h.reentrant && h.refs > 0 && h.end.Load() == nil
}

// join adds a handle to a hold, and prolongs it.
func (h *hold) join(ctx context.Context) (*Lock, error) {
	c := h.c
	l := &Lock{hold: h}
	c.mu.Lock()
	if !h.joinable() {
		c.mu.Unlock()
		return nil, ErrReleased
	}
	l.next, h.locks = h.locks, l
	h.refs++
	c.mu.Unlock()
	if err := h.extend(ctx, h.ttl); err != nil {
		_ = l.Release() // err says it all
		return nil, err
	}
	return l, nil
}
