package holdfast

// A flight is a request under way that may prolong a hold. Release waits until
// there is none, so that nothing is written after it has returned.

// takeOff registers a request that may prolong the hold, unless it is over.
func (h *hold) takeOff() bool {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if h.end.Load() != nil {
		return false
	}
	h.flights++
	return true
}

// land unregisters such a request. The caller holds c.mu.
func (h *hold) land() {
	h.flights--
	if h.flights == 0 && h.landed != nil {
		close(h.landed)
		h.landed = nil
	}
}

// land unregisters requests that were not sent after all.
func (c *Client) land(holds []*hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range holds {
		h.land()
	}
}

// grounded waits until no request is under way that may prolong the hold.
func (h *hold) grounded() {
	h.c.mu.Lock()
	if h.flights == 0 {
		h.c.mu.Unlock()
		return
	}
	if h.landed == nil {
		h.landed = make(chan struct{})
	}
	landed := h.landed
	h.c.mu.Unlock()
	<-landed
}
