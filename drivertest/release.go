package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// releaseCases are about the end of a hold by its owner.
var releaseCases = []testCase{
	{"frees", 0, "A Release by the owner reports a hold, and the name is free at once. A second one reports none.", func(r *caseRun) {
		h, other := r.first.hold("name", long), r.other()
		h.end()
		for range 50 { // A Release that is sent after its Acquire takes effect after it.
			r.first.expectFree("name")
			other.expectFree("name")
		}
		h.expectGone()
		successor := other.hold("name", long)
		h.expectGone()
		successor.expectHeld()
	}},
	{"place", queue, "A Release ends a place and reports it, once, but with Keep reports false. The order of the others stays.", func(r *caseRun) {
		h, other := r.first.hold("name", long), r.other()
		a, b, c, d := r.first.place("name", long), r.first.place("name", long), other.place("name", long), other.place("name", long)
		for what, owner := range strangers(b.Owner) {
			if r.first.releaseAs("name", owner, 0) {
				r.Errorf("Release by %s reports a place", what)
			}
		}
		b.end()
		b.expectGone()
		if !r.features.has(keep) {
			a.end()
		} else if r.first.releaseAs("name", a.Owner, long) {
			r.Error("Release of a place with Keep reports a hold")
		}
		a.expectGone()
		h.expectHeld()
		h.expectTurns(c, d)
	}},
}

// keepCases are about names that stay taken after a Release.
var keepCases = []testCase{
	{"taken", keep, "A kept name has no owner: nobody acquires, renews or releases it, not even the one that released it.", func(r *caseRun) {
		h := r.first.hold("name", long)
		h.keep(r.medium)
		kept := time.Now()
		r.other().expectTaken("name")
		for _, token := range []int64{0, h.token} {
			h.expect(r.first.renew(h.renewRequest(token, long))[0], driver.Lost)
		}
		if r.first.releaseAs("name", r.newOwner(), 0) {
			r.Error("Release of a kept name by a stranger reports a hold")
		}
		r.other().expectTaken("name")
		r.first.eventually("name", kept.Add(r.medium))
	}},
	{"time", keep, "A name is kept for as long as was requested, whether less or more was left of the TTL.", func(r *caseRun) {
		for _, kept := range []time.Duration{250 * time.Millisecond, r.medium + short} {
			h := r.first.hold("name", r.medium)
			r.other().takenFor(r.first.request("name", long), h.keep(kept), kept).end()
		}
	}},
	{"repeated", keep, "The same Release sent again while the name is kept reports true, and keeps it anew.", func(r *caseRun) {
		h := r.first.hold("name", long)
		h.keep(r.medium)
		time.Sleep(short)
		r.first.takenFor(r.first.request("name", long), h.keep(r.medium), r.medium)
	}},
	{"repeated-too-late", keep, "The same Release sent again when the keep is over reports no hold, and does nothing to a successor.", func(r *caseRun) {
		h := r.first.hold("name", long)
		h.keep(short)
		r.sleepPast(short)
		again := func() {
			if r.first.releaseAs("name", h.Owner, long) {
				r.Error("the same Release sent again after the keep reports a hold")
			}
		}
		again()
		successor := r.first.hold("name", long)
		again()
		successor.expectHeld()
		successor.end()
		r.first.expectFree("name")
	}},
	{"records", keep, "What a refusal by a kept name, Lookup and List show is true: no holder, and at most the time for which it is kept.", func(r *caseRun) {
		h := r.first.hold("name", long)
		h.TTL = time.Minute
		h.keep(h.TTL)
		r.expectRecord("a refusal", r.first.expectTaken("name"), h, true)
		if r.features.has(lookup) {
			r.expectRecords("name", h)
		}
		if r.features.has(list) {
			r.expectShown("List", r.other().list("")["name"], true, h)
		}
	}},
}
