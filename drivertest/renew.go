package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// renewCases are about what Renew reports, and what it prolongs.
var renewCases = []testCase{
	{"hold", 0, "A Renew without a token, or with that of the hold, prolongs it and is answered Held with its token.", func(r *caseRun) {
		a, b := r.first.hold("a", r.medium), r.first.hold("b", r.medium)
		for range 3 {
			a.expectRenewed(driver.Held, long)
			b.expect(r.first.renew(b.renewRequest(b.token, long))[0], driver.Held)
		}
		a.sleepPast()
		b.sleepPast()
		a.expectHeld()
		b.expectHeld()
		b.end()
		r.other().expectFree("b")
	}},
	{"hold-other-token", fencing, "A Renew with another token than the first of the hold is answered Lost, and does not prolong it.", func(r *caseRun) {
		h := r.first.block("name", r.medium, r.guarantees.Tokens)
		for _, token := range []int64{1, h.token - 1, h.token + 1, h.lastToken() + 1, driver.MaxToken} {
			h.expect(r.first.renew(h.renewRequest(token, long))[0], driver.Lost)
		}
		h.expectState(driver.Held)
		r.other().takenFor(r.first.request("name", long), h.sent, r.medium)
	}},
	{"nothing", 0, "A Renew of an owner that has nothing is answered Lost, with and without a token, and makes nothing.", func(r *caseRun) {
		never := &entry{store: r.first, Request: r.first.request("never", long), token: 1}
		never.expectGone()
		released := r.first.hold("released", long)
		released.end()
		released.expectGone()
		r.first.expectFree("never")
		r.first.expectFree("released")
		if r.features.has(breaking) {
			broken := r.first.hold("broken", long)
			r.first.breakToken("broken", 0)
			broken.expectGone()
			r.first.expectFree("broken")
		}
		h := r.first.hold("held", r.medium)
		never.Name = "held"
		never.expectGone()
		r.first.eventually("held", h.answered.Add(r.medium))
	}},
	{"place", queue, "A Renew without a token, or with that of the place, prolongs it and is answered Waiting with its token, or with 0.", func(r *caseRun) {
		h := r.first.hold("name", long)
		a, b, c := r.first.place("name", r.medium), r.first.place("name", r.medium), r.first.place("name", r.medium)
		a.expectRenewed(driver.Waiting, long)
		a.expectState(driver.Waiting) // does not shorten it
		b.expect(r.first.renew(b.renewRequest(b.token, long))[0], driver.Waiting)
		if c.token != 0 {
			for _, token := range []int64{1, h.token, a.token, c.token + 1} {
				c.expect(r.first.renew(c.renewRequest(token, long))[0], driver.Lost)
			}
		}
		// One batch may have the hold and the places of a name.
		got := r.first.renew(c.renewRequest(0, driver.MinTTL), h.renewRequest(h.token, long), a.renewRequest(0, driver.MinTTL))
		c.expect(got[0], driver.Waiting)
		h.expect(got[1], driver.Held)
		a.expect(got[2], driver.Waiting)
		c.sleepPast()
		c.expectGone()
		h.expectTurns(a, b)
	}},
	{"place-that-holds", queue, "A Renew of a place that has become a hold is answered Held, and prolongs the hold.", func(r *caseRun) {
		h := r.first.hold("name", long)
		a := r.other().place("name", r.medium)
		h.end()
		a.expectRenewed(driver.Held, long)
		a.expectAbove(h)
		a.expect(a.store.renew(a.renewRequest(a.token, long))[0], driver.Held)
		a.sleepPast()
		a.expectHeld()
	}},
	{"batch", 0, "The answers to a batch are those of its requests, in their order, and each has a TTL of its own.", func(r *caseRun) {
		ended, lapsed := r.first.hold("ended", long), r.first.expired("lapsed")
		mine, brief := r.first.hold("mine", r.medium), r.first.hold("brief", r.medium)
		ended.end()
		stranger := &entry{store: r.first, Request: r.first.request("mine", long)}
		entries := []*entry{lapsed, mine, ended, stranger, brief}
		want := []driver.State{driver.Lost, driver.Held, driver.Lost, driver.Lost, driver.Held}
		var reqs []driver.RenewRequest
		for _, e := range entries {
			reqs = append(reqs, e.renewRequest(0, long))
		}
		reqs[4].TTL = driver.MinTTL
		for i, got := range r.first.renew(reqs...) {
			entries[i].expect(got, want[i])
		}
		due := brief.answered.Add(r.medium)
		if renewed := time.Now().Add(reqs[4].TTL); renewed.After(due) {
			due = renewed // a grain has kept the hold until now
		}
		r.first.eventually("brief", due)
		mine.expectHeld()
	}},
	{"batch-large", 0, "A batch of 500 holds is renewed by one call, and one of none returns no error.", func(r *caseRun) {
		r.first.renew()
		entries := make([]*entry, 500)
		reqs := make([]driver.RenewRequest, len(entries))
		for begin := 0; begin < len(entries); begin += 100 { // A slow server has time for so many.
			r.parallel(100, func(i int) error {
				i += begin
				e, res, err := r.first.send(r.first.request(fmt.Sprint("large/", i), long))
				if err != nil || !res.Granted {
					return fmt.Errorf("acquire of a free name: %+v, %w", res, err)
				}
				entries[i], reqs[i] = e, e.renewRequest(0, long)
				return nil
			})
		}
		for i, got := range r.first.renew(reqs...) {
			entries[i].expect(got, driver.Held)
		}
	}},
}
