package drivertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var guaranteesCases = []testCase{
	{
		name:  "stable",
		claim: "Guarantees returns the same answer each time, from each store over the same locks.",
		run: func(r *run) {
			r.first.grant("name", long).end()
			for _, c := range []*client{r.first, r.other()} {
				if got := c.Guarantees(); got != r.guarantees {
					r.Errorf("Guarantees has become %+v, was %+v", got, r.guarantees)
				}
			}
		},
	},
	{
		name:  "complete",
		claim: "Guarantees names the store, and leaves none of Scope, HolderCrash, Restart and Failover open.",
		run: func(r *run) {
			g := r.guarantees
			if g.Store == "" {
				r.Error("Guarantees().Store is empty")
			}
			for what, text := range map[string]string{
				"Scope":       g.Scope.String(),
				"HolderCrash": g.HolderCrash.String(),
				"Restart":     g.Restart.String(),
				"Failover":    g.Failover.String(),
			} {
				if text == "unknown" {
					r.Errorf("Guarantees().%s is unknown", what)
				}
			}
		},
	},
	{
		name:  "push",
		claim: "A store that claims Push is a Watcher, and one that is none does not claim it.",
		needs: push,
		run: func(r *run) {
			if _, ok := r.first.Store.(driver.Watcher); !ok {
				r.Error("the store claims Push and does not implement driver.Watcher")
			}
		},
	},
	{
		name:  "supervised",
		claim: "A store that claims Supervised claims Push.",
		needs: supervised,
		run: func(r *run) {
			if !r.guarantees.Push {
				r.Error("the store claims Supervised and does not claim Push")
			}
		},
	},
	{
		name:  "no-lookup",
		claim: "A store that does not claim Lookup refuses it with ErrUnsupported.",
		lacks: lookup,
		run: func(r *run) {
			r.first.grant("name", long)
			ctx, cancel := r.bound()
			defer cancel()
			if _, found, err := r.first.Lookup(ctx, "name"); found || !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Lookup gives %v, %v, want ErrUnsupported", found, err)
			}
		},
	},
	{
		name:  "no-list",
		claim: "A store that does not claim List yields ErrUnsupported once, and no record.",
		lacks: list,
		run: func(r *run) {
			r.first.grant("name", long)
			ctx, cancel := r.bound()
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
		name:  "no-break",
		claim: "A store that does not claim Break refuses it with ErrUnsupported, and the hold stays.",
		lacks: breaking,
		run: func(r *run) {
			h := r.first.grant("name", long)
			ctx, cancel := r.bound()
			defer cancel()
			if _, found, err := r.first.Break(ctx, "name"); found || !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Break gives %v, %v, want ErrUnsupported", found, err)
			}
			h.intact()
		},
	},
}
