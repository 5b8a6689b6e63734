package drivertest

import "github.com/holdfast-go/holdfast/driver"

// claimsCases are about Claims, which recognize what an owner has.
var claimsCases = []testCase{
	{
		name:    "unclaimed",
		claim:   "A store that does not claim Fair refuses a Claim with ErrUnsupported, and changes nothing.",
		without: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			for _, req := range []driver.AcquireRequest{h.claimRequest(long, long), r.first.newRequest("name", long), r.first.newRequest("free", long)} {
				req.Claim, req.Queue = true, long
				r.first.expectAcquireError(req, driver.ErrUnsupported)
			}
			r.first.expectFree("free")
			r.first.eventuallyGranted("name", h.answered.Add(medium))
		},
	},
	{
		name:     "nothing",
		claim:    "A Claim by an owner that has neither a hold nor a place makes neither, whether the name is free or taken.",
		requires: fair,
		run: func(r *caseRun) {
			stranger := &hold{client: r.first, name: "name", owner: r.newOwner()}
			stranger.expectNothingClaimed()
			r.first.expectFree("name")
			h := r.first.acquireFree("name", long)
			stranger.expectNothingClaimed()
			w := r.first.queueUp("name", long)
			stranger.expectNothingClaimed()
			h.releaseHeld()
			h.expectNothingClaimed()
			w.expectAdmitted()
			w.releaseHeld()
			w.expectNothingClaimed()
			r.first.expectFree("name")
			r.first.expiredHold("name").expectNothingClaimed()
			r.first.expectFree("name")
		},
	},
	{
		name:     "kept",
		claim:    "A Claim by the owner that released a name with Keep finds nothing, and the name stays kept.",
		requires: fair | keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			began := h.releaseKeep(medium)
			for range 2 {
				if res := h.claim(long, long); res.Granted || res.Queued {
					r.Errorf("Claim of a kept name: %+v, want neither Granted nor Queued", res)
				}
			}
			r.otherStore().heldFor("name", began, medium)
		},
	},
	{
		name:     "hold",
		claim:    "A Claim of a hold is granted again with its tokens, and the hold lasts until TTL from now at least.",
		requires: fair,
		run: func(r *caseRun) {
			a, b := r.first.acquireFree("a", medium), r.first.acquireSeveral("b", long, 3)
			a.expectClaimed(long)
			b.expectClaimed(driver.MinTTL)
			a.sleepPastExpiry()
			a.expectStillHeld()
			b.expectStillHeld()
		},
	},
	{
		name:     "place",
		claim:    "A Claim of a place is queued again and keeps its turn, and the place lasts until Queue from now at least.",
		requires: fair,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			a, b := r.first.queueUp("name", medium), r.otherStore().queueUp("name", long)
			for _, claimed := range []driver.AcquireResult{a.claim(driver.MinTTL, long), a.claim(long, driver.MinTTL), b.claim(long, driver.MinTTL)} {
				if claimed.Granted || !claimed.Queued {
					r.Errorf("Claim of a place: %+v, want it queued", claimed)
				}
			}
			a.sleepPastExpiry()
			h.expectTurns(a, b)
		},
	},
}
