package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var keepCases = []testCase{
	{
		name:    "unclaimed",
		claim:   "A store that does not claim Keep refuses a Release with Keep with ErrUnsupported, and the hold stays.",
		without: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			_, err := r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner, Keep: long})
			if !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Release with Keep: %v, want ErrUnsupported", err)
			}
			h.expectStillHeld()
			h.releaseHeld()
		},
	},
	{
		name:     "taken",
		claim:    "No owner can take or release a kept name, and not even the owner that released it can take it.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseKeep(long)
			if r.first.releaseAs("name", r.newOwner(), 0) {
				r.Error("Release of a kept name by a stranger reports a hold")
			}
			r.otherStore().expectHeld("name")
			req := r.first.newRequest("name", long)
			req.Owner = h.owner
			r.first.acquireRefused(req)
		},
	},
	{
		name:     "shorter-than-TTL",
		claim:    "A name kept for less than was left of the TTL is free when the keep is over, and not before.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			r.otherStore().heldFor("name", h.releaseKeep(250*time.Millisecond), 250*time.Millisecond)
		},
	},
	{
		name:     "longer-than-TTL",
		claim:    "A name kept for longer than was left of the TTL is free when the keep is over, and not before.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			r.otherStore().heldFor("name", h.releaseKeep(medium+short), medium+short)
		},
	},
	{
		name:     "no-renewal",
		claim:    "A Renew of a kept name by its former owner returns RenewLost and does not prolong the keep.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseKeep(short)
			h.expectLost()
			r.first.eventuallyGranted("name", time.Now().Add(short))
		},
	},
	{
		name:     "repeated",
		claim:    "The same Release sent again while the name is kept reports true, and the name stays kept.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseKeep(long)
			if !h.client.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again reports no hold")
			}
			r.first.expectHeld("name")
		},
	},
	{
		name:     "repeated-too-late",
		claim:    "The same Release sent again when the keep is over reports no hold, and does nothing to a successor.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseKeep(short)
			r.sleepPast(short)
			if h.client.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again when the keep is over reports a hold")
			}
			successor := r.first.acquireFree("name", long)
			if h.client.releaseAs("name", h.owner, long) {
				r.Error("the same Release sent again to a successor reports a hold")
			}
			successor.expectStillHeld()
		},
	},
	{
		name:     "refusal",
		claim:    "A refusal because of a kept name contains at most the time for which it is kept, and no holder.",
		requires: keep,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseKeep(time.Minute)
			held := r.first.expectHeld("name")
			if held.Remaining > time.Minute+r.guarantees.Grain || held.Remaining < 0 {
				r.Errorf("of a keep of %v a refusal gives %v as remaining", time.Minute, held.Remaining)
			}
			if held.Holder != "" {
				r.Errorf("a refusal by a kept name names the holder %q", held.Holder)
			}
		},
	},
}
