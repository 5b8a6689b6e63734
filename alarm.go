package holdfast

import "github.com/holdfast-go/holdfast/driver"

// listen has a store that learns of losses by itself tell us of them.
func (c *Client) listen() {
	c.deafen = func() {}
	if store, ok := c.store.(driver.Alarmer); ok {
		c.deafen = store.OnLoss(c.alarmed)
	}
}

// alarmed ends a hold of which the store says that it is lost.
func (c *Client) alarmed(full, owner string) {
	if c.begin() != nil {
		return // all holds end anyway
	}
	go func() { // hooks may take their time
		defer c.active.Done()
		for _, h := range c.holds() {
			if h.full == full && h.owner == owner {
				h.lose(ErrTaken)
			}
		}
	}()
}
