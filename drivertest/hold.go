package drivertest

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (h *hold) renew(ttl time.Duration) driver.RenewOutcome {
	h.c.r.Helper()
	return h.c.renewAs(h.name, h.owner, ttl)
}

// again sends the Acquire of the hold again, which must be granted.
func (h *hold) again(ttl time.Duration) *hold {
	h.c.r.Helper()
	return h.c.take(driver.AcquireRequest{
		Name: h.name, Owner: h.owner, Holder: h.holder, TTL: ttl, Metadata: h.metadata,
	})
}

func (h *hold) release() bool {
	h.c.r.Helper()
	return h.c.releaseAs(h.name, h.owner, 0)
}

// end releases the hold, which must be there.
func (h *hold) end() {
	h.c.r.Helper()
	if !h.release() {
		h.c.r.Fatalf("Release of %q reported no hold, want one", h.name)
	}
}

// keep releases the hold, which must be there, and has the name kept. It
// returns when the keep began at the earliest.
func (h *hold) keep(d time.Duration) time.Time {
	h.c.r.Helper()
	sent := time.Now()
	if !h.c.releaseAs(h.name, h.owner, d) {
		h.c.r.Fatalf("Release of %q with Keep reported no hold, want one", h.name)
	}
	return sent
}

// intact checks that the hold is its owner's, and nobody else's.
func (h *hold) intact() {
	h.c.r.Helper()
	h.c.busy(h.name)
	if got := h.renew(long); got != driver.Renewed {
		h.c.r.Errorf("the hold of %q is gone: its owner's Renew is answered %d, want Renewed", h.name, got)
	}
}

// runOut waits until the store's clock has passed the end of the hold.
func (h *hold) runOut() {
	time.Sleep(time.Until(h.answered.Add(h.ttl + 2*precision)))
}

// lapse lets a hold of the name run out and returns it.
func (c *client) lapse(name string) *hold {
	c.r.Helper()
	h := c.grant(name, short)
	h.runOut()
	return h
}

// lost checks that a Renew finds no hold of this owner.
func (h *hold) lost() {
	h.c.r.Helper()
	if got := h.renew(long); got != driver.RenewLost {
		h.c.r.Errorf("Renew of %q by an owner that does not hold it is answered %d, want RenewLost", h.name, got)
	}
}

// notReleased checks that a Release finds no hold of this owner.
func (h *hold) notReleased() {
	h.c.r.Helper()
	if h.release() {
		h.c.r.Errorf("Release of %q by an owner that does not hold it reports a hold, want none", h.name)
	}
}

// imposters are owners that must not be taken for the owner of a hold.
func imposters(owner string) map[string]string {
	return map[string]string{
		"another owner":                 "x" + owner[1:],
		"a beginning of the owner":      owner[:len(owner)-1],
		"an end of the owner":           owner[1:],
		"the owner and a letter more":   owner + "x",
		"the owner and a space more":    owner + " ",
		"the owner in another case":     strings.ToUpper(owner),
		"a pattern that fits the owner": owner[:1] + "*",
		"a pattern of any character":    "%",
	}
}
