package drivertest

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

var releaseCases = []testCase{
	{
		name:  "frees",
		claim: "A Release by the owner reports a hold, and the name is free at once.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			if !h.release() {
				r.Error("Release by the owner reports no hold")
			}
			r.other().free("name")
		},
	},
	{
		name:  "second",
		claim: "A second Release reports no hold.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.end()
			h.notReleased()
		},
	},
	{
		name:  "free-name",
		claim: "A Release of a name that was never held reports no hold.",
		run: func(r *run) {
			stranger := &hold{c: r.first, name: "name", owner: r.owner()}
			stranger.notReleased()
			r.first.free("name")
		},
	},
	{
		name:  "not-the-owner",
		claim: "A Release by anyone but the owner, compared whole, reports no hold and changes nothing.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			for what, owner := range imposters(h.owner) {
				if r.first.releaseAs("name", owner, 0) {
					r.Errorf("Release by %s reports a hold", what)
				}
			}
			h.intact()
		},
	},
	{
		name:  "no-owner",
		claim: "A Release without an owner ends nobody's hold.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			ctx, cancel := r.bound()
			defer cancel()
			if released, _ := r.first.Release(ctx, driver.ReleaseRequest{Name: "name"}); released {
				r.Error("Release without an owner reports a hold")
			}
			h.intact()
		},
	},
	{
		name:  "after-expiry",
		claim: "A Release of a hold that has run out reports no hold.",
		run: func(r *run) {
			r.first.lapse("name").notReleased()
			r.first.free("name")
		},
	},
	{
		name:  "late-with-successor",
		claim: "A late Release of a hold that has run out never frees the successor's.",
		run: func(r *run) {
			h := r.first.lapse("name")
			successor := r.other().grant("name", long)
			h.notReleased()
			successor.intact()
		},
	},
	{
		name:  "second-with-successor",
		claim: "A second Release never frees the successor's hold.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.end()
			successor := r.other().grant("name", long)
			h.notReleased()
			successor.intact()
		},
	},
	{
		name:  "one-name-only",
		claim: "A Release ends the hold of its name only, also where one owner holds several.",
		run: func(r *run) {
			a := r.first.request("a", long)
			b := r.first.request("b", long)
			b.Owner = a.Owner
			ha, hb := r.first.take(a), r.first.take(b)
			ha.end()
			hb.intact()
		},
	},
	{
		name:  "in-order",
		claim: "A Release sent after the Acquire has returned takes effect after it.",
		run: func(r *run) {
			other := r.other()
			for range 100 {
				r.first.grant("name", long).end()
				other.grant("name", long).end()
			}
		},
	},
	{
		name:  "many",
		claim: "Holds taken and released by many goroutines at once leave every name free.",
		run: func(r *run) {
			r.each(64, func(i int) error {
				req := r.first.request(fmt.Sprintf("many/%d", i), long)
				for range 5 {
					if err := r.first.mustGrant(req); err != nil {
						return err
					}
					if err := r.first.mustRelease(req); err != nil {
						return err
					}
				}
				return nil
			})
		},
	},
}

// mustRelease is end for goroutines other than that of the case.
func (c *client) mustRelease(req driver.AcquireRequest) error {
	ctx, cancel := c.r.bound()
	defer cancel()
	released, err := c.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil {
		return fmt.Errorf("release of %q: %w", req.Name, err)
	}
	if !released {
		return fmt.Errorf("release of %q by its owner reports no hold", req.Name)
	}
	return nil
}
