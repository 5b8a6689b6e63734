package drivertest

import (
	"reflect"

	"github.com/holdfast-go/holdfast/driver"
)

var breakCases = []testCase{
	{
		name:     "held-name",
		claim:    "Break ends the hold of a name, of any owner, and reports what it ended.",
		requires: breaking,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			other := r.otherStore()
			rec, found := other.breakHold("name")
			if !found {
				r.Error("Break of a held name reports nothing")
			}
			r.expectRecord("Break", rec, h, true)
			other.expectFree("name")
		},
	},
	{
		name:     "free-name",
		claim:    "Break of a free name reports nothing.",
		requires: breaking,
		run: func(r *caseRun) {
			r.expectBreakNothing("name", 0)
			r.first.expiredHold("name")
			r.expectBreakNothing("name", 0)
			r.first.acquireFree("name", long).releaseHeld()
			r.expectBreakNothing("name", 0)
			r.first.expectFree("name")
		},
	},
	{
		name:     "kept-name",
		claim:    "Break frees a kept name, and reports it as kept.",
		requires: breaking | keep,
		run: func(r *caseRun) {
			r.first.acquireFree("name", long).releaseKeep(long)
			if rec, found := r.first.breakHold("name"); !found || !rec.Kept {
				r.Errorf("Break of a kept name reports %+v, %v", rec, found)
			}
			r.first.expectFree("name")
		},
	},
	{
		name:     "victim-with-successor",
		claim:    "The Renew and Release of a broken hold do nothing to the successor's.",
		requires: breaking,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			r.first.breakHold("name")
			successor := r.otherStore().acquireFree("name", long)
			h.expectLost()
			h.expectNotReleased()
			successor.expectStillHeld()
		},
	},
	{
		name:     "one-name-only",
		claim:    "Break of one name leaves the others alone.",
		requires: breaking,
		run: func(r *caseRun) {
			a, ab := r.first.acquireFree("a", long), r.first.acquireFree("ab", long)
			r.first.breakHold("a")
			ab.expectStillHeld()
			a.expectLost()
		},
	},
	{
		name:     "token",
		claim:    "Break with the token of a hold ends that hold, and reports what it ended.",
		requires: breaking | fencing,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			other := r.otherStore()
			rec, found := other.breakToken("name", h.token)
			if !found {
				r.Error("Break with the token of the hold reports nothing")
			}
			r.expectRecord("Break", rec, h, true)
			h.expectLost()
			other.expectFree("name")
			r.expectBreakNothing("name", h.token)
		},
	},
	{
		name:     "other-token",
		claim:    "Break with another token than the first of the hold, which its Record shows, changes nothing.",
		requires: breaking | fencing,
		run: func(r *caseRun) {
			before := r.first.acquireFree("name", long)
			before.releaseHeld()
			h := r.otherStore().acquireSeveral("name", long, driver.MaxTokens)
			other := r.first.acquireFree("other", long)
			last := h.token + int64(max(h.tokens, 1)) - 1
			for _, token := range []int64{1, h.token / 10, before.token, h.token - 1, h.token + 1, last + 1, driver.MaxToken} {
				r.expectBreakNothing("name", token)
			}
			if last != h.token {
				r.expectBreakNothing("name", last)
			}
			if r.guarantees.Shared {
				req := r.first.limitedRequest("shared", long, driver.Shared)
				req.Tokens = driver.MaxTokens
				reader := r.first.acquireGranted(req)
				r.expectBreakNothing("shared", reader.token+1)
				reader.expectStillHeld()
			}
			if other.token != h.token {
				r.expectBreakNothing("name", other.token)
			}
			h.expectStillHeld()
			other.expectStillHeld()
		},
	},
}

// expectBreakNothing checks that a Break with a token, or with 0 for any, finds no such hold.
func (r *caseRun) expectBreakNothing(name string, token int64) {
	r.Helper()
	if rec, found := r.first.breakToken(name, token); found || !reflect.ValueOf(rec).IsZero() {
		r.Errorf("Break of %q with token %d gives %+v, %v, want a zero record and false", name, token, rec, found)
	}
}
