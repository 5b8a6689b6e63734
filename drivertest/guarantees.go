package drivertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var guaranteesCases = []testCase{
	{
		name:  "stable",
		claim: "Guarantees returns the same value each time, from each store over the same locks.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long).releaseHeld()
			for _, c := range []*client{r.first, r.otherStore()} {
				if got := c.Guarantees(); got != r.guarantees {
					r.Errorf("Guarantees has become %+v, was %+v", got, r.guarantees)
				}
			}
		},
	},
	{
		name:  "complete",
		claim: "Guarantees contains the name of the store, and values of Scope, HolderCrash, Restart and Failover.",
		run: func(r *caseRun) {
			g := r.guarantees
			if g.Store == "" || g.Scope == 0 || g.HolderCrash == 0 || g.Restart == 0 || g.Failover == 0 {
				r.Errorf("Guarantees are not complete: %+v", g)
			}
		},
	},
	{
		name:    "no-lookup",
		claim:   "A store that does not claim Lookup refuses it with ErrUnsupported, or reports of the holds of others only that they exist.",
		without: lookup,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			look := func(name string, want bool) {
				r.Helper()
				ctx, cancel := r.callContext()
				defer cancel()
				rec, found, err := r.otherStore().Lookup(ctx, name)
				switch {
				case errors.Is(err, driver.ErrUnsupported) && !found:
				case err != nil || found != want:
					r.Errorf("Lookup gives %v, %v, want ErrUnsupported or %v", found, err, want)
				case found && (rec.Name != name || rec.Kept || rec.Remaining != 0):
					r.Errorf("Lookup, which is not claimed, gives %+v, want the name and no time remaining", rec)
				}
				r.expectNoSecret("Lookup", rec)
			}
			look("name", true)
			look("other name", false)
			h.releaseHeld()
			look("name", false)
		},
	},
	{
		name:    "no-list",
		claim:   "A store that does not claim List yields ErrUnsupported once, and no record.",
		without: list,
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			yielded := 0
			for rec, err := range r.first.List(ctx, "") {
				yielded++
				if !errors.Is(err, driver.ErrUnsupported) {
					r.Errorf("List yields %+v, %v, want ErrUnsupported", rec, err)
				}
			}
			if yielded != 1 {
				r.Errorf("List yields %d times, want ErrUnsupported once", yielded)
			}
		},
	},
	{
		name:    "no-break",
		claim:   "A store that does not claim Break refuses it with ErrUnsupported, and the hold stays.",
		without: breaking,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			ctx, cancel := r.callContext()
			defer cancel()
			if _, found, err := r.first.Break(ctx, driver.BreakRequest{Name: "name"}); found || !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Break gives %v, %v, want ErrUnsupported", found, err)
			}
			h.expectStillHeld()
		},
	},
}
