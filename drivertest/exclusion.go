package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// exclusionCases are about one owner that has a name, and the others, which do not.
var exclusionCases = []testCase{
	{"held-name", 0, "A name that an owner holds is refused to every other, through each store, until it is released.", func(r *caseRun) {
		other := r.other()
		for _, s := range []*store{r.first, other} {
			h := s.hold("name", long)
			for range 3 {
				r.first.expectTaken("name")
				other.expectTaken("name")
			}
			h.expectHeld()
			h.end()
		}
		r.first.expectFree("name")
	}},
	{"names-apart", 0, "What happens to one name leaves the others alone.", func(r *caseRun) {
		a, ab := r.first.hold("a", long), r.first.hold("ab", r.medium)
		a.expectRenewed(driver.Held, long)
		a.end()
		if r.features.has(breaking) {
			r.first.hold("a", long)
			r.first.breakToken("a", 0)
		}
		ab.store.takenFor(r.first.request("ab", long), ab.sent, r.medium)
		r.first.expectFree("a")
	}},
	{"second-acquire", 0, "A second Acquire of an owner that has an entry is refused with an error, whatever it requests, and changes nothing.", func(r *caseRun) {
		entries, stores := []*entry{r.first.hold("name", r.medium)}, []*store{r.first}
		if r.features.has(queue) {
			entries = append(entries, r.first.place("name", r.medium))
		}
		if r.features.has(records) { // Otherwise it knows too little of the entries of others.
			stores = append(stores, r.other())
		}
		for i, e := range entries {
			for _, s := range stores {
				for _, place := range []time.Duration{0, long} {
					again := e.Request
					again.TTL, again.Place = long, place
					ctx, cancel := r.callContext()
					if res, err := s.Acquire(ctx, again); err == nil || res.Granted || res.Waiting {
						r.Errorf("a second Acquire of an owner with an entry: %+v, %v, want an error", res, err)
					}
					cancel()
				}
			}
			e.expectState([]driver.State{driver.Held, driver.Waiting}[i])
		}
		for _, e := range entries {
			e.sleepPast()
			e.expectGone()
		}
		r.first.expectFree("name")
	}},
	{"owner-compared-whole", 0, "An owner is the same only byte for byte: no other acquires, renews or releases its hold.", func(r *caseRun) {
		h := r.first.hold("name", r.medium)
		for what, owner := range strangers(h.Owner) {
			req := r.first.request("name", long)
			req.Owner = owner
			if res := r.first.acquire(req); res.Granted {
				r.Errorf("a held name is granted to %s", what)
			}
			for _, token := range []int64{0, h.token} {
				renewal := driver.RenewRequest{Name: "name", Owner: owner, Token: token, TTL: long}
				if got := r.first.renew(renewal)[0]; got.State != driver.Lost {
					r.Errorf("Renew by %s is answered %v", what, got.State)
				}
			}
			if r.first.releaseAs("name", owner, 0) {
				r.Errorf("Release by %s reports a hold", what)
			}
		}
		h.expectState(driver.Held)
		r.first.takenFor(r.first.request("name", long), h.sent, r.medium)
	}},
	{"late-requests", 0, "What an owner sends after the end of its hold never touches the hold of a successor.", func(r *caseRun) {
		expired, released := r.first.expired("expired"), r.first.hold("released", long)
		released.end()
		for _, late := range []*entry{expired, released} {
			successor := r.other().hold(late.Name, r.medium)
			late.expectGone()
			successor.expectState(driver.Held)
			r.first.takenFor(r.first.request(late.Name, long), successor.sent, r.medium)
		}
	}},
	{"refusal-harmless", 0, "Refused attempts do not prolong the hold in the way, whatever their TTL is, and leave no entry.", func(r *caseRun) {
		h := r.first.hold("name", r.medium)
		other, refused := r.other(), r.first.request("name", long)
		r.first.refuse(refused)
		for range 5 {
			other.expectTaken("name")
		}
		if r.first.releaseAs("name", refused.Owner, 0) {
			r.Error("a refused attempt has left an entry")
		}
		other.takenFor(other.request("name", long), h.sent, r.medium).end()
		r.first.expectFree("name")
	}},
	{"refusal-record", 0, "What a refusal reports of the hold in the way is true.", func(r *caseRun) {
		req := r.first.request("name", long)
		if r.features.has(metadata) {
			req.Metadata = map[string]string{"job": "42"}
		}
		h := r.first.grant(req)
		r.expectRecord("a refusal", r.other().expectTaken("name"), h, true)
		if r.features.has(queue) {
			_, res, err := r.first.send(r.first.placeRequest("name", long))
			if err != nil {
				r.Fatal(err)
			}
			r.expectRecord("the answer to a place", res.Held, h, true)
		}
	}},
	{"secret", 0, "No answer and no record shows the owner of a hold, or of a place behind it.", func(r *caseRun) {
		r.first.hold("name", long)
		for _, s := range []*store{r.first, r.other()} {
			r.expectNoSecret("a result", s.acquire(s.request("name", long)), s.acquire(s.placeRequest("name", long)))
			if r.features.has(lookup) {
				r.expectNoSecret("Lookup", s.lookup("name"))
			}
			if r.features.has(list) {
				r.expectNoSecret("List", s.list(""))
			}
		}
		if r.features.has(breaking) {
			r.expectNoSecret("Break", r.first.breakToken("name", 0))
		}
	}},
}
