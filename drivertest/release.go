package drivertest

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
}
