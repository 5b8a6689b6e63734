package drivertest

import (
	"time"
)

var acquireCases = []testCase{
	{
		name:  "held-name",
		claim: "An Acquire of a name that another owner holds is refused, as a result and not as an error.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			if res := r.first.acquire(r.first.newRequest("name", long)); res.Granted || res.Token != 0 {
				r.Errorf("a held name is granted to another owner, or its refusal has a token: %+v", res)
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
		name:  "secret",
		claim: "No answer and no record shows the owner of a hold, or of a place behind it.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			if r.features.contains(notifying) {
				_, res := r.first.wait(r.first.queueRequest("name", long))
				r.expectNoSecret("a reply to a request with Queue", res)
			}
			r.expectNoSecret("a refusal", r.first.expectHeld("name"), r.otherStore().expectHeld("name"))
			if r.features.contains(lookup) {
				rec, _ := r.first.lookupRecord("name")
				r.expectNoSecret("Lookup", rec)
			}
			if r.features.contains(list) {
				r.expectNoSecret("List", r.first.listRecords(""))
			}
			if r.features.contains(breaking) {
				rec, _ := r.first.breakHold("name")
				r.expectNoSecret("Break", rec)
			}
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
			h.expectRenewed(long)
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
		claim: "An Acquire repeated by the owner ensures that the hold lasts until TTL from now, and never shortens it.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			h.repeatAcquire(long)
			h.repeatAcquire(short)
			h.sleepPastExpiry()
			r.first.expectHeld("name")
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
