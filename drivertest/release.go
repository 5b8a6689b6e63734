package drivertest

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

var releaseCases = []testCase{
	{
		name:  "frees",
		claim: "A Release by the owner reports a hold, and the name is free at once.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			if !h.release() {
				r.Error("Release by the owner reports no hold")
			}
			r.otherStore().expectFree("name")
		},
	},
	{
		name:  "second",
		claim: "A second Release reports no hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseHeld()
			h.expectNotReleased()
		},
	},
	{
		name:  "free-name",
		claim: "A Release of a name that was never held reports no hold.",
		run: func(r *caseRun) {
			stranger := &hold{client: r.first, name: "name", owner: r.newOwner()}
			stranger.expectNotReleased()
			r.first.expectFree("name")
		},
	},
	{
		name:  "not-the-owner",
		claim: "A Release by another owner, compared whole, reports no hold and changes nothing.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for what, owner := range otherOwners(h.owner) {
				if r.first.releaseAs("name", owner, 0) {
					r.Errorf("Release by %s reports a hold", what)
				}
			}
			h.expectStillHeld()
		},
	},
	{
		name:  "no-owner",
		claim: "A Release without an owner ends no hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			if released, _ := r.first.Release(ctx, driver.ReleaseRequest{Name: "name"}); released {
				r.Error("Release without an owner reports a hold")
			}
			h.expectStillHeld()
		},
	},
	{
		name:  "after-expiry",
		claim: "A Release of a hold that has run out reports no hold.",
		run: func(r *caseRun) {
			r.first.expiredHold("name").expectNotReleased()
			r.first.expectFree("name")
		},
	},
	{
		name:  "after-extension",
		claim: "A hold that was renewed beyond the end of its first TTL is released like any other hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", medium)
			if got := h.renewFor(long); got != driver.Renewed {
				r.Fatalf("Renew by the owner is answered %d, want Renewed", got)
			}
			h.sleepPastExpiry()
			h.releaseHeld()
			r.otherStore().expectFree("name")
		},
	},
	{
		name:  "late-with-successor",
		claim: "A late Release of an expired hold never frees the successor's hold.",
		run: func(r *caseRun) {
			h := r.first.expiredHold("name")
			successor := r.otherStore().acquireFree("name", long)
			h.expectNotReleased()
			successor.expectStillHeld()
		},
	},
	{
		name:  "second-with-successor",
		claim: "A second Release never frees the successor's hold.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseHeld()
			successor := r.otherStore().acquireFree("name", long)
			h.expectNotReleased()
			successor.expectStillHeld()
		},
	},
	{
		name:  "one-name-only",
		claim: "A Release ends only the hold of its name, also if one owner holds several names.",
		run: func(r *caseRun) {
			a := r.first.newRequest("a", long)
			b := r.first.newRequest("b", long)
			b.Owner = a.Owner
			ha, hb := r.first.acquireGranted(a), r.first.acquireGranted(b)
			ha.releaseHeld()
			hb.expectStillHeld()
		},
	},
	{
		name:  "in-order",
		claim: "A Release sent after the Acquire has returned takes effect after it.",
		run: func(r *caseRun) {
			other := r.otherStore()
			for range 100 {
				r.first.acquireFree("name", long).releaseHeld()
				other.acquireFree("name", long).releaseHeld()
			}
		},
	},
	{
		name:  "many",
		claim: "Holds taken and released by many goroutines at once leave every name free.",
		run: func(r *caseRun) {
			r.runParallel(64, func(i int) error {
				req := r.first.newRequest(fmt.Sprintf("many/%d", i), long)
				for range 5 {
					if err := r.first.grantOrError(req); err != nil {
						return err
					}
					if err := r.first.releaseOrError(req.Name, req.Owner); err != nil {
						return err
					}
				}
				return nil
			})
		},
	},
}
