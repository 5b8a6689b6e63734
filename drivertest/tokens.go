package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// tokensCases are about fencing tokens.
var tokensCases = []testCase{
	{"rise", fencing, "Every grant has a higher token than those before it, through each store, over release, expiry, keep and break.", func(r *caseRun) {
		stores := []*store{r.first, r.other()}
		last := stores[1].hold("name", long)
		last.end()
		for i := range 30 {
			next := stores[i%2].hold("name", long)
			next.expectAbove(last)
			next.end()
			last = next
		}
		next := r.first.expired("name")
		next.expectAbove(last)
		last, next = next, r.first.hold("name", long)
		next.expectAbove(last)
		if r.features.has(keep) {
			next.keep(short)
			r.sleepPast(short)
			last, next = next, stores[1].hold("name", long)
			next.expectAbove(last)
		}
		if r.features.has(breaking) {
			r.first.breakToken("name", 0)
			last, next = next, r.first.hold("name", long)
			next.expectAbove(last)
		}
	}},
	{"queue", fencing | queue, "The tokens of a name rise in the order of its queue, and a place has the token that its hold has.", func(r *caseRun) {
		h := r.first.hold("name", long)
		other, last := r.other(), h
		var places []*entry
		for i := range 4 {
			p := []*store{r.first, other}[i%2].place("name", long)
			if p.token != 0 {
				p.expectAbove(last)
				last = p
			}
			p.expectState(driver.Waiting) // with the same token, or 0
			places = append(places, p)
		}
		h.expectTurns(places...)
	}},
	{"floor", fencing | floors, "A token is not below its floor, and later tokens are above it, over release and expiry.", func(r *caseRun) {
		req := r.first.request("name", long)
		req.Floor = r.tokenAhead(driver.MaxLead / 2)
		last := r.first.grant(req)
		if last.token < req.Floor {
			r.Errorf("above a floor of %d the token %d is granted", req.Floor, last.token)
		}
		last.end()
		next := r.other().hold("name", short)
		next.expectAbove(last)
		next.sleepPast()
		r.first.hold("name", long).expectAbove(next)
	}},
	{"floor-invalid", fencing | floors, "A floor too far above the clock, or with a Place, is ErrInvalid, and raises no token.", func(r *caseRun) {
		limit := r.tokenAhead(driver.MaxLead / 2)
		for range 2 { // a name that was never taken, and one that was
			for _, floor := range []int64{r.tokenAhead(driver.MaxLead * 3 / 2), driver.MaxToken - 1, driver.MaxToken} {
				req := r.first.request("name", long)
				req.Floor = floor
				r.first.expectError(req, driver.ErrInvalid)
			}
			req := r.first.placeRequest("name", long)
			req.Floor = limit
			r.first.expectError(req, driver.ErrInvalid)
			h := r.first.hold("name", long)
			if h.token > limit {
				r.Errorf("after floors that were refused the token is %d, want at most %d", h.token, limit)
			}
			h.end()
		}
	}},
	{"floor-of-a-refusal", fencing | floors, "The floor of an attempt that was refused has no effect on later grants.", func(r *caseRun) {
		h := r.first.hold("name", long)
		// The slowest nodes of a quorum apply a grant after the reply. No call reports when.
		time.Sleep(short)
		req := r.first.request("name", long)
		req.Floor = h.token + (driver.MaxLead / 2).Microseconds()
		r.first.refuse(req)
		time.Sleep(short) // They also receive an attempt after the refusal.
		h.end()
		if next := r.first.hold("name", long); next.token >= req.Floor {
			r.Errorf("the token %d shows the floor %d of a refused attempt", next.token, req.Floor)
		}
	}},
	{"block", fencing | blocks, "A grant has as many tokens as it requests, up to Guarantees.Tokens: later entries have tokens above them.", func(r *caseRun) {
		other, last := r.other(), r.first.hold("name", long)
		for i, tokens := range []int{r.guarantees.Tokens, 0, 2, 1, r.guarantees.Tokens} {
			last.end()
			next := []*store{other, r.first}[i%2].block("name", long, tokens)
			next.expectAbove(last)
			next.expectState(driver.Held)
			last = next
		}
		if r.features.has(queue) {
			req := r.first.placeRequest("name", long)
			req.Tokens = r.guarantees.Tokens
			a, b := r.first.wait(req), other.place("name", long)
			last.expectTurns(a, b)
			last = b
		} else {
			last.end()
		}
		next := r.first.block("name", short, r.guarantees.Tokens)
		next.expectAbove(last)
		next.sleepPast()
		other.hold("name", long).expectAbove(next)
	}},
	{"block-invalid", fencing, "More tokens than Guarantees.Tokens are refused, and several are ErrInvalid with a Limit or a Floor. No entry is made.", func(r *caseRun) {
		req := r.first.request("name", long)
		req.Tokens = max(r.guarantees.Tokens, 1) + 1
		r.first.expectError(req, driver.ErrInvalid, driver.ErrUnsupported)
		if !r.features.has(blocks) {
			return
		}
		req.Tokens, req.Floor = 2, 1
		r.first.expectError(req, driver.ErrInvalid)
		for _, limit := range []int{2, driver.Shared} {
			if r.features.has(limits) || r.features.has(shared) && limit == driver.Shared {
				req.Limit, req.Floor = limit, 0
				r.first.expectError(req, driver.ErrInvalid)
			}
		}
		r.first.expectFree("name")
	}},
}

// tokenAhead returns a token that is above the clock of the store by lead. It uses the token of a
// grant without a floor as the clock.
func (r *caseRun) tokenAhead(lead time.Duration) int64 {
	r.Helper()
	h := r.first.hold("clock", long)
	h.end()
	return h.token + lead.Microseconds()
}
