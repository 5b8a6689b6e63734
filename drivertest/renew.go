package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var renewCases = []testCase{
	{
		name:  "prolongs",
		claim: "A renewed hold lasts at least until TTL from the renewal, also if a shorter one follows, and is released like any other.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			h.expectRenewed(long)
			h.expectRenewed(short)
			h.sleepPastExpiry()
			r.first.expectHeld("name")
			h.releaseHeld()
			r.otherStore().expectFree("name")
		},
	},
	{
		name:  "ends",
		claim: "A renewed hold runs out at the TTL of its last renewal.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", short)
			h.renewFor(2 * short)
			r.first.eventuallyGranted("name", time.Now().Add(2*short))
		},
	},
	{
		name:     "keeps-token",
		claim:    "After a renewal Lookup shows the same token, and the time of that renewal.",
		requires: fencing | lookup,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			for range 3 {
				h.expectRenewed(long)
			}
			if rec, _ := r.first.lookupRecord("name"); rec.Token != h.token || rec.Remaining <= medium || rec.Remaining > long+r.guarantees.Grain {
				r.Errorf("after renewals of the hold with token %d for %v Lookup shows %+v", h.token, long, rec)
			}
		},
	},
	{
		name:     "token",
		claim:    "A Renew with the token of the hold renews it, and one with another token returns RenewLost and does not prolong it.",
		requires: fencing,
		run: func(r *caseRun) {
			const ttl = time.Second
			h := r.first.acquireFree("name", ttl)
			for _, token := range []int64{1, h.token - 1, h.token + 1, driver.MaxToken} {
				if got := r.first.renewAll(driver.RenewRequest{Name: "name", Owner: h.owner, TTL: long, Token: token})[0]; got != driver.RenewLost {
					r.Errorf("Renew with another token is answered %d, want RenewLost", got)
				}
			}
			r.otherStore().heldFor("name", h.sent, ttl).releaseHeld()
			h = r.first.acquireSeveral("name", medium, 3)
			if got := r.first.renewAll(driver.RenewRequest{Name: "name", Owner: h.owner, TTL: long, Token: h.token})[0]; got != driver.Renewed {
				r.Errorf("Renew with the token of the hold is answered %d, want Renewed", got)
			}
			h.sleepPastExpiry()
			r.first.expectHeld("name")
		},
	},
	{
		name:     "other-process",
		claim:    "If the store claims Detached, each hold can be renewed and released through any store with its owner.",
		requires: detached | processes,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			h.client = r.otherStore()
			h.expectRenewed(long)
			if !h.release() {
				r.Error("Release through another store reports no hold")
			}
		},
	},
	{
		name:  "after-expiry",
		claim: "An expired hold cannot be renewed, even if no other owner has taken the name, and the name stays free.",
		run: func(r *caseRun) {
			h := r.first.expiredHold("name")
			h.expectLost()
			h.expectLost()
			r.first.expectFree("name")
		},
	},
	{
		name:  "late-with-successor",
		claim: "A late Renew of an expired hold returns RenewLost and does nothing to the successor's hold.",
		run: func(r *caseRun) {
			h := r.first.expiredHold("name")
			successor := r.otherStore().acquireFree("name", short)
			h.expectLost()
			// The late Renew has not made the hold last longer.
			r.first.eventuallyGranted("name", successor.answered.Add(short)).expectStillHeld()
		},
	},
	{
		name:  "not-the-owner",
		claim: "A Renew by another owner, compared whole, returns RenewLost and does not prolong the hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			for what, owner := range otherOwners(h.owner) {
				if got := r.first.renewAs("name", owner, long); got != driver.RenewLost {
					r.Errorf("Renew by %s is answered %d, want RenewLost", what, got)
				}
			}
			r.first.eventuallyGranted("name", h.answered.Add(medium))
		},
	},
	{
		name:  "batch-in-order",
		claim: "The outcomes of a batch are those of its requests, in their order.",
		run: func(r *caseRun) {
			mine, theirs := r.first.acquireFree("mine", long), r.first.acquireFree("theirs", long)
			ended, lapsed := r.first.acquireFree("ended", long), r.first.expiredHold("lapsed")
			ended.releaseHeld()
			stranger := r.newOwner()
			reqs := []driver.RenewRequest{
				{Name: "lapsed", Owner: lapsed.owner, TTL: long},
				{Name: "mine", Owner: mine.owner, TTL: long},
				{Name: "ended", Owner: ended.owner, TTL: long},
				{Name: "mine", Owner: stranger, TTL: long},
				{Name: "theirs", Owner: theirs.owner, TTL: long},
				{Name: "never held", Owner: stranger, TTL: long},
			}
			want := []driver.RenewOutcome{
				driver.RenewLost, driver.Renewed, driver.RenewLost,
				driver.RenewLost, driver.Renewed, driver.RenewLost,
			}
			if got := r.first.renewAll(reqs...); !slices.Equal(got, want) {
				r.Errorf("the outcomes are %v, want %v", got, want)
			}
		},
	},
	{
		name:  "batch-each-its-ttl",
		claim: "Every request of a batch has a TTL of its own.",
		run: func(r *caseRun) {
			a, b := r.first.acquireFree("a", medium), r.first.acquireFree("b", medium)
			r.first.renewAll(
				driver.RenewRequest{Name: "a", Owner: a.owner, TTL: long},
				driver.RenewRequest{Name: "b", Owner: b.owner, TTL: short},
			)
			r.first.eventuallyGranted("b", b.answered.Add(medium))
			r.first.expectHeld("a")
		},
	},
	{
		name:  "batch-large",
		claim: "A batch of 500 holds is renewed by one call.",
		run: func(r *caseRun) {
			reqs := make([]driver.RenewRequest, 500)
			r.runParallel(len(reqs), func(i int) error {
				req := r.first.newRequest(fmt.Sprintf("large/%d", i), long)
				reqs[i] = driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: long}
				return r.first.grantOrError(req)
			})
			for i, got := range r.first.renewAll(reqs...) {
				if got != driver.Renewed {
					r.Errorf("outcome %d is %d, want Renewed", i, got)
				}
			}
		},
	},
}

// grantOrError is acquireGranted for goroutines other than that of the case.
func (c *client) grantOrError(req driver.AcquireRequest) error {
	ctx, cancel := c.run.callContext()
	defer cancel()
	res, err := c.Acquire(ctx, req)
	if err != nil {
		return fmt.Errorf("acquire of %q: %w", req.Name, err)
	}
	if !res.Granted {
		return fmt.Errorf("acquire of the free name %q was refused", req.Name)
	}
	return nil
}
