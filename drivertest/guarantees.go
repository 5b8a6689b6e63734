package drivertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// guaranteesCases are about what a store claims, and that it refuses the rest and changes nothing.
var guaranteesCases = []testCase{
	{"complete", 0, "Guarantees returns the same value each time, with the name of the store and the three fates.", func(r *caseRun) {
		g := r.guarantees
		if g.Store == "" || g.Crash == 0 || g.Restart == 0 || g.Failover == 0 {
			r.Errorf("Guarantees are not complete: %+v", g)
		}
		if g.Tokens < 0 || g.Tokens > driver.MaxTokens || g.Grain < 0 || g.Tokens > 1 && !g.Fencing {
			r.Errorf("Guarantees are out of bounds: %+v", g)
		}
		r.first.expectFree("name")
		for _, s := range []*store{r.first, r.other()} {
			if got := s.Guarantees(); got != g {
				r.Errorf("Guarantees has become %+v, was %+v", got, g)
			}
		}
	}},
	{"limit-one", 0, "Every store takes a Limit of 1, which is an exclusive lock, as 0 is.", func(r *caseRun) {
		h := r.first.grant(limited(r.first.request("name", long), 1))
		r.other().refuse(limited(r.first.request("name", long), 1))
		h.expectHeld()
		h.end()
		r.first.expectFree("name")
	}},
	{"refusals", 0, "What a store does not claim or support it refuses with ErrUnsupported, makes no entry, and leaves the hold as it is.", func(r *caseRun) {
		h := r.first.hold("held", long)
		ctx, cancel := r.callContext()
		defer cancel()
		expect := func(feature features, what string, err error, answers int) {
			r.Helper()
			if !r.features.has(feature) && (!errors.Is(err, driver.ErrUnsupported) || answers > 0) {
				r.Errorf("%s: %d answers, %v, want ErrUnsupported", what, answers, err)
			}
		}
		for _, name := range []string{"held", "free"} {
			for _, req := range r.unsupported(name) {
				r.first.expectError(req, driver.ErrUnsupported)
			}
			found, err := r.first.Lookup(ctx, name)
			expect(lookup, "Lookup", err, len(found))
		}
		yielded := 0
		for rec, err := range r.first.List(ctx, "") {
			yielded++
			expect(list, "List", err, len(rec.Name)+yielded-1)
		}
		if yielded == 0 && !r.features.has(list) {
			r.Error("List yields nothing, want ErrUnsupported")
		}
		if !r.features.has(breaking) {
			ended, err := r.first.Break(ctx, "held", 0)
			expect(breaking, "Break", err, len(ended))
		}
		if !r.features.has(keep) {
			_, err := r.first.Release(ctx, driver.ReleaseRequest{Name: "held", Owner: h.Owner, Keep: long})
			expect(keep, "Release with Keep", err, 0)
		}
		h.expectHeld() // without a token if the store does not claim Fencing
		if r.features.has(lookup) && !r.guarantees.Fencing && r.first.lookup("held")[0].Token != 0 {
			r.Error("Lookup shows a token, and Fencing is not claimed")
		}
		h.end()
		r.first.expectFree("held")
		r.first.expectFree("free")
	}},
}

// unsupported returns requests for a name that the store does not support.
func (r *caseRun) unsupported(name string) (reqs []driver.Request) {
	add := func(feature features, change func(req *driver.Request)) {
		if req := r.first.placeRequest(name, long); !r.features.has(feature) {
			change(&req)
			reqs = append(reqs, req)
		}
	}
	add(limits, func(req *driver.Request) { req.Limit = 2 })
	add(limits, func(req *driver.Request) { req.Limit = driver.Shared - 1 })
	add(shared, func(req *driver.Request) { req.Limit = driver.Shared })
	add(detached, func(req *driver.Request) { req.Detached = true })
	add(metadata, func(req *driver.Request) { req.Metadata = map[string]string{"job": "42"} })
	return reqs
}
