package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var acquireCases = []testCase{
	{
		name:  "free-name",
		claim: "An Acquire of a free name is granted.",
		run:   func(r *caseRun) { r.first.acquireFree("name", long) },
	},
	{
		name:  "held-name",
		claim: "An Acquire of a name that another owner holds is refused, as a result and not as an error.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			res, err := r.first.Acquire(ctx, r.first.newRequest("name", long))
			if err != nil {
				r.Errorf("a held name is reported as an error: %v", err)
			} else if res.Granted {
				r.Error("a held name is granted to another owner")
			} else if res.Token != 0 {
				r.Errorf("a refusal comes with the token %d", res.Token)
			}
		},
	},
	{
		name:     "two-processes",
		claim:    "A hold taken through one store excludes every other store over the same locks.",
		requires: processes,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := r.first.acquireFree("name", long)
			other.expectHeld("name")
			h.releaseHeld()
			h = other.acquireFree("name", long)
			r.first.expectHeld("name")
			h.releaseHeld()
			r.first.expectFree("name")
		},
	},
	{
		name:     "refusal-remaining",
		claim:    "A refusal of a store that claims Lookup contains how long the hold in the way will last, never more than its TTL.",
		requires: lookup,
		run: func(r *caseRun) {
			for _, ttl := range []time.Duration{long, medium, time.Minute + 345*time.Millisecond} {
				name := ttl.String()
				r.first.acquireFree(name, ttl)
				held := r.first.expectHeld(name)
				if held.Remaining <= 0 || held.Remaining > ttl+r.guarantees.Grain {
					r.Errorf("of a TTL of %v a refusal gives %v as remaining", ttl, held.Remaining)
				}
			}
		},
	},
	{
		name:  "refusal-record",
		claim: "What a refusal reports of the hold in the way is true.",
		run: func(r *caseRun) {
			req := r.first.newRequest("name", long)
			req.Metadata = map[string]string{"job": "42"}
			h := r.first.acquireGranted(req)
			r.expectRecord("a refusal", r.otherStore().expectHeld("name"), h, true)
		},
	},
	{
		name:  "refusal-secret",
		claim: "A refusal never shows the owner of the hold.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			r.expectNoSecret("a refusal", r.first.expectHeld("name"), r.otherStore().expectHeld("name"))
		},
	},
	{
		name:  "refusal-harmless",
		claim: "Refused attempts leave the hold as it is: its owner renews and releases it as if there had been no attempts.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for range 20 {
				r.otherStore().expectHeld("name")
			}
			if got := h.renewFor(long); got != driver.Renewed {
				r.Errorf("after refused attempts the owner's Renew is answered %d, want Renewed", got)
			}
			if !h.release() {
				r.Error("after refused attempts the owner's Release reports no hold")
			}
			r.first.expectFree("name")
		},
	},
	{
		name:  "refusal-does-not-prolong",
		claim: "Refused attempts do not prolong the hold in the way, whatever their TTL is.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			r.otherStore().expectHeld("name") // with a long TTL
			r.otherStore().eventuallyGranted("name", h.answered.Add(medium))
		},
	},
	{
		name:  "names-apart",
		claim: "A hold of one name is not in the way of another name.",
		run: func(r *caseRun) {
			a := r.first.acquireFree("a", long)
			b := r.first.acquireFree("b", long)
			a.releaseHeld()
			r.first.expectHeld("b")
			b.releaseHeld()
		},
	},
	{
		name:  "repetition",
		claim: "An Acquire repeated by the owner of the hold is granted again, with the same token.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for range 3 {
				if again := h.repeatAcquire(long); again.token != h.token {
					r.Errorf("a repetition is granted the token %d, want %d as before", again.token, h.token)
				}
			}
			r.first.expectHeld("name")
		},
	},
	{
		name:  "repetition-prolongs",
		claim: "An Acquire repeated by the owner ensures that the hold lasts until TTL from now.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			h.repeatAcquire(long)
			h.sleepPastExpiry()
			r.first.expectHeld("name")
		},
	},
	{
		name:  "repetition-never-shortens",
		claim: "An Acquire repeated by the owner with a shorter TTL does not shorten the hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.repeatAcquire(medium).sleepPastExpiry()
			r.first.expectHeld("name")
		},
	},
	{
		name:  "repetition-after-release",
		claim: "An Acquire by the owner of a hold that was released is a new grant.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseHeld()
			again := h.repeatAcquire(long)
			r.expectHigherToken(h, again)
			again.expectStillHeld()
		},
	},
	{
		name:  "repetition-after-expiry",
		claim: "An Acquire by the owner of a hold that has run out is a new grant.",
		run: func(r *caseRun) {
			h := r.first.expiredHold("name")
			again := h.repeatAcquire(long)
			r.expectHigherToken(h, again)
			again.expectStillHeld()
		},
	},
	{
		name:  "owner-compared-whole",
		claim: "An Acquire is a repetition only if its owner is the same, byte for byte.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for what, owner := range otherOwners(h.owner) {
				req := r.first.newRequest("name", long)
				req.Owner = owner
				if r.first.acquire(req).Granted {
					r.Errorf("a held name is granted to %s", what)
				}
			}
		},
	},
	{
		name:  "no-owner",
		claim: "An Acquire without an owner never shares the hold of an owner; it may be refused as invalid.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			req := r.first.newRequest("name", long)
			req.Owner = ""
			ctx, cancel := r.callContext()
			defer cancel()
			res, err := r.first.Acquire(ctx, req)
			if err != nil && !errors.Is(err, driver.ErrInvalid) {
				r.Errorf("Acquire without an owner: %v, want a refusal or ErrInvalid", err)
			}
			if res.Granted {
				r.Error("a held name is granted to nobody")
			}
		},
	},
	{
		name:  "request-unchanged",
		claim: "A store does not change the metadata of a request.",
		run: func(r *caseRun) {
			req := r.first.newRequest("name", long)
			req.Metadata = map[string]string{"job": "42"}
			r.first.acquireGranted(req)
			if len(req.Metadata) != 1 || req.Metadata["job"] != "42" {
				r.Errorf("the metadata of the request has become %v", req.Metadata)
			}
		},
	},
}

// expectHigherToken checks that the token of a later grant is above that of an
// earlier one.
func (r *caseRun) expectHigherToken(earlier, later *hold) {
	r.Helper()
	last := earlier.token + int64(earlier.tokens) - 1
	if r.guarantees.Fencing && later.token <= last {
		r.Errorf("a later grant of %q has the token %d, not above %d", later.name, later.token, last)
	}
}
