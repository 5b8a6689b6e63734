package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var detachedCases = []testCase{
	{
		name:    "unclaimed",
		claim:   "A store that does not claim Detached refuses a detached hold with ErrUnsupported, and takes nothing.",
		without: detached,
		run: func(r *caseRun) {
			r.first.expectAcquireError(r.first.detachedRequest("name", long), driver.ErrUnsupported)
			r.first.expectFree("name")
		},
	},
	{
		name:     "handed-over",
		claim:    "Any process that knows the owner of a detached hold may renew and release it.",
		requires: detached,
		run: func(r *caseRun) {
			h := r.first.acquireGranted(r.first.detachedRequest("name", medium))
			h.client = r.otherStore()
			h.expectStillHeld()
			h.sleepPastExpiry()
			h.expectStillHeld()
			h.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "outlives-store",
		claim:    "A detached hold lasts on after the store that requested it is closed.",
		requires: detached | processes,
		run: func(r *caseRun) {
			h := r.first.acquireGranted(r.first.detachedRequest("name", long))
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			h.client = r.openStore()
			h.expectStillHeld()
			h.releaseHeld()
			h.client.expectFree("name")
		},
	},
	{
		name:     "outlives-process",
		claim:    "A detached hold lasts on after the process that requested it has died.",
		requires: detached | processes | crash,
		run: func(r *caseRun) {
			requester := r.openStore()
			h := requester.acquireGranted(requester.detachedRequest("name", long))
			again := requester.detachedRequest("name", long)
			again.Owner = h.owner
			requester.acquireGranted(again)
			r.backing.Crash(r, requester.Store)
			h.client = r.first
			h.expectStillHeld()
			h.releaseHeld()
			h.client.expectFree("name")
		},
	},
	{
		name:     "outlives-renewer",
		claim:    "A detached hold stays detached when another process renews it: it lasts on after that process has died.",
		requires: detached | processes | crash,
		run: func(r *caseRun) {
			h := r.first.acquireGranted(r.first.detachedRequest("name", long))
			h.client = r.openStore()
			h.client.acquireFree("other name", long) // so that the store has what ends with a process
			h.expectStillHeld()
			r.backing.Crash(r, h.client.Store)
			h.client = r.first
			h.expectStillHeld()
		},
	},
	{
		name:     "expires",
		claim:    "A detached hold ends when its TTL has run out, like any other hold.",
		requires: detached,
		run: func(r *caseRun) {
			h := r.first.acquireGranted(r.first.detachedRequest("name", short))
			r.otherStore().heldFor("name", h.sent, short)
			h.expectLost()
		},
	},
}

// detachedRequest returns a request for a hold that outlives the process that sends
// the request.
func (c *client) detachedRequest(name string, ttl time.Duration) driver.AcquireRequest {
	req := c.newRequest(name, ttl)
	req.Detached = true
	return req
}
