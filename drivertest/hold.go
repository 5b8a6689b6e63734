package drivertest

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func (h *hold) renewFor(ttl time.Duration) driver.RenewOutcome {
	h.client.run.Helper()
	return h.client.renewAs(h.name, h.owner, ttl)
}

// repeatAcquire sends the Acquire of the hold again, which must be granted.
func (h *hold) repeatAcquire(ttl time.Duration) *hold {
	h.client.run.Helper()
	return h.client.acquireGranted(driver.AcquireRequest{
		Name: h.name, Owner: h.owner, Holder: h.holder, TTL: ttl, Metadata: h.metadata,
	})
}

// expectRenewed checks that a hold is there, and prolongs it.
func (h *hold) expectRenewed(ttl time.Duration) {
	h.client.run.Helper()
	if got := h.renewFor(ttl); got != driver.Renewed {
		h.client.run.Errorf("Renew of %q by its owner is answered %d, want Renewed", h.name, got)
	}
}

func (h *hold) release() bool {
	h.client.run.Helper()
	return h.client.releaseAs(h.name, h.owner, 0)
}

// releaseHeld releases the hold, which must exist.
func (h *hold) releaseHeld() {
	h.client.run.Helper()
	if !h.release() {
		h.client.run.Fatalf("Release of %q reported no hold, want one", h.name)
	}
}

// startRelease releases the hold, which must exist, on another goroutine. It returns the channel that
// receives the error.
func (h *hold) startRelease() <-chan error {
	released := make(chan error, 1)
	go func() { released <- h.client.releaseOrError(h.name, h.owner) }()
	return released
}

// releaseKeep releases the hold, which must exist, and keeps the name. It returns
// when the keep began at the earliest.
func (h *hold) releaseKeep(d time.Duration) time.Time {
	h.client.run.Helper()
	sent := time.Now()
	if !h.client.releaseAs(h.name, h.owner, d) {
		h.client.run.Fatalf("Release of %q with Keep reported no hold, want one", h.name)
	}
	return sent
}

// expectStillHeld checks that the owner, and no other owner, has the hold.
func (h *hold) expectStillHeld() {
	h.client.run.Helper()
	h.client.expectHeld(h.name)
	h.expectRenewed(long)
}

// sleepPastExpiry waits until the store's clock has passed the end of the hold.
func (h *hold) sleepPastExpiry() {
	h.client.run.sleepPast(time.Until(h.answered.Add(h.ttl)))
}

// expiredHold acquires the name, lets the hold expire, and returns it.
func (c *client) expiredHold(name string) *hold {
	c.run.Helper()
	h := c.acquireFree(name, short)
	h.sleepPastExpiry()
	return h
}

// expectLost checks that a Renew finds no hold of this owner.
func (h *hold) expectLost() {
	h.client.run.Helper()
	if got := h.renewFor(long); got != driver.RenewLost {
		h.client.run.Errorf("Renew of %q by an owner that does not hold it is answered %d, want RenewLost", h.name, got)
	}
}

// expectNotReleased checks that a Release finds no hold of this owner.
func (h *hold) expectNotReleased() {
	h.client.run.Helper()
	if h.release() {
		h.client.run.Errorf("Release of %q by an owner that does not hold it reports a hold, want none", h.name)
	}
}

// otherOwners returns owners that a store must distinguish from owner.
func otherOwners(owner string) map[string]string {
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
