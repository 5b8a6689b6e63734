package drivertest

import (
	"github.com/holdfast-go/holdfast/driver"
)

// breakCases are about the end of a hold by others.
var breakCases = []testCase{
	{"all", breaking, "Break with token 0 ends the hold of a name, of any owner, and returns what it ended: nothing if there is none.", func(r *caseRun) {
		other := r.other()
		r.expectBroken(other, "name", 0)
		h := r.first.hold("name", long)
		r.expectBroken(other, "name", 0, h)
		h.expectGone()
		successor := other.hold("name", long)
		h.expectGone()
		successor.expectHeld()
		h = r.first.expired("expired")
		r.expectBroken(other, "expired", 0)
		if r.features.has(fencing) {
			r.expectBroken(other, "expired", h.token)
		}
	}},
	{"token", breaking | fencing, "Break with a token ends the hold that has it, and no other.", func(r *caseRun) {
		before, other := r.first.hold("name", long), r.other()
		before.end()
		h := other.hold("name", long)
		for _, token := range []int64{1, h.token / 10, before.token, h.token - 1, h.token + 1, driver.MaxToken} {
			r.expectBroken(r.first, "name", token)
		}
		h.expectHeld()
		r.expectBroken(r.first, "name", h.token, h)
		h.expectGone()
		r.expectBroken(r.first, "name", h.token)
		r.first.expectFree("name")
	}},
	{"block", breaking | fencing | blocks, "Break with any token of the block of a hold ends it.", func(r *caseRun) {
		for n := range int64(r.guarantees.Tokens) {
			h := r.first.block("name", long, r.guarantees.Tokens)
			r.expectBroken(r.other(), "name", h.token-1)
			r.expectBroken(r.other(), "name", h.lastToken()+1)
			r.expectBroken(r.other(), "name", h.token+n, h)
			h.expectGone()
		}
	}},
	{"keep", breaking | keep, "Break ends a keep, with token 0 or that of the hold, and returns it.", func(r *caseRun) {
		a := r.first.hold("name", long)
		a.keep(long)
		r.expectBroken(r.other(), "name", 0, a)
		b := r.first.hold("name", long)
		b.keep(long)
		r.expectBroken(r.other(), "name", b.token, b)
		r.first.expectFree("name")
	}},
	{"places-stay", breaking | queue, "Break ends no place: the first becomes a hold.", func(r *caseRun) {
		h, other := r.first.hold("name", long), r.other()
		a, b := r.first.place("name", long), other.place("name", long)
		if b.token != 0 {
			r.expectBroken(other, "name", b.token)
		}
		r.expectBroken(other, "name", 0, h)
		a.expectTurn()
		h.expectGone()
		b.expectState(driver.Waiting)
		r.expectBroken(other, "name", a.token, a)
		b.expectTurn()
		a.expectGone()
		b.expectHeld()
	}},
	{"one-of-several", breaking | shared | fencing, "Of several holds Break ends the one with the token, and with token 0 all.", func(r *caseRun) {
		var holds []*entry
		for range 4 {
			holds = append(holds, r.first.reader("name", long))
		}
		for _, i := range []int{2, 0} {
			r.expectBroken(r.other(), "name", holds[i].token, holds[i])
			holds[i].expectGone()
		}
		holds[1].expectRenewed(driver.Held, long)
		holds[3].expectRenewed(driver.Held, long)
		r.expectBroken(r.other(), "name", 0, holds[1], holds[3])
		holds[1].expectGone()
		holds[3].expectGone()
		r.first.expectFree("name")
	}},
	{"told", breaking | notifier, "A store that is a Notifier sends the owner of a broken hold a notice with token 0.", func(r *caseRun) {
		h := r.first.hold("name", long)
		r.other().breakToken("name", 0)
		if n := h.expectNotice("which was broken"); n.token != 0 {
			r.Errorf("the notice of a broken hold has the token %d", n.token)
		}
		h.expectGone()
	}},
}

// expectBroken breaks a token, or all for 0, and checks that it ends these holds.
func (r *caseRun) expectBroken(s *store, name string, token int64, holds ...*entry) {
	r.Helper()
	r.expectShown("Break", s.breakToken(name, token), true, holds...)
}
