package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var renewCases = []testCase{
	{
		name:  "prolongs",
		claim: "A renewed hold lasts at least until TTL from the renewal.",
		run: func(r *run) {
			h := r.first.grant("name", medium)
			if got := h.renew(long); got != driver.Renewed {
				r.Fatalf("Renew by the owner is answered %d, want Renewed", got)
			}
			h.runOut()
			r.first.busy("name")
		},
	},
	{
		name:  "never-shortens",
		claim: "A Renew with a shorter TTL does not shorten the hold.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			if got := h.renew(short); got != driver.Renewed {
				r.Errorf("Renew with a shorter TTL is answered %d, want Renewed", got)
			}
			time.Sleep(short + 2*precision)
			r.first.busy("name")
		},
	},
	{
		name:  "ends",
		claim: "A renewed hold runs out at the TTL of its last renewal.",
		run: func(r *run) {
			h := r.first.grant("name", short)
			h.renew(2 * short)
			r.first.succeed("name", time.Now().Add(2*short))
		},
	},
	{
		name:  "keeps-token",
		claim: "A hold has the same token after it was renewed.",
		needs: fencing | lookup,
		run: func(r *run) {
			h := r.first.grant("name", long)
			for range 3 {
				h.renew(long)
			}
			if rec, _ := r.first.lookup("name"); rec.Token != h.token {
				r.Errorf("after renewals the token is %d, want %d as before", rec.Token, h.token)
			}
		},
	},
	{
		name:  "other-process",
		claim: "Where holds can be handed over, each can be renewed and released through any store by whoever knows its owner.",
		needs: detached | processes,
		run: func(r *run) {
			h := r.first.grant("name", medium)
			h.c = r.other()
			if got := h.renew(long); got != driver.Renewed {
				r.Errorf("Renew through another store is answered %d, want Renewed", got)
			}
			if !h.release() {
				r.Error("Release through another store reports no hold")
			}
		},
	},
	{
		name:  "free-name",
		claim: "A Renew never takes a free name: it is answered RenewLost and the name stays free.",
		run: func(r *run) {
			stranger := &hold{c: r.first, name: "name", owner: r.owner()}
			stranger.lost()
			r.first.free("name")
		},
	},
	{
		name:  "after-release",
		claim: "A released hold cannot be renewed, however often it is tried, and the name stays free.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			h.end()
			h.lost()
			h.lost()
			r.first.free("name")
		},
	},
	{
		name:  "after-expiry",
		claim: "A hold that has run out cannot be renewed, though nobody has taken the name, and the name stays free.",
		run: func(r *run) {
			h := r.first.lapse("name")
			h.lost()
			h.lost()
			r.first.free("name")
		},
	},
	{
		name:  "late-with-successor",
		claim: "A late Renew of a hold that has run out is answered RenewLost and does nothing to the successor's hold.",
		run: func(r *run) {
			h := r.first.lapse("name")
			successor := r.other().grant("name", short)
			h.lost()
			// The late Renew has not made the hold last longer.
			r.first.succeed("name", successor.answered.Add(short)).intact()
		},
	},
	{
		name:  "not-the-owner",
		claim: "A Renew by anyone but the owner, compared whole, is answered RenewLost and does not prolong the hold.",
		run: func(r *run) {
			h := r.first.grant("name", medium)
			for what, owner := range imposters(h.owner) {
				if got := r.first.renewAs("name", owner, long); got != driver.RenewLost {
					r.Errorf("Renew by %s is answered %d, want RenewLost", what, got)
				}
			}
			r.first.succeed("name", h.answered.Add(medium))
		},
	},
	{
		name:  "batch-in-order",
		claim: "The outcomes of a batch are those of its requests, in their order.",
		run: func(r *run) {
			mine, theirs := r.first.grant("mine", long), r.first.grant("theirs", long)
			ended, lapsed := r.first.grant("ended", long), r.first.lapse("lapsed")
			ended.end()
			stranger := r.owner()
			reqs := []driver.RenewRequest{
				{Name: "lapsed", Owner: lapsed.owner, TTL: long},
				{Name: "mine", Owner: mine.owner, TTL: long},
				{Name: "ended", Owner: ended.owner, TTL: long},
				{Name: "mine", Owner: stranger, TTL: long},
				{Name: "theirs", Owner: theirs.owner, TTL: long},
				{Name: "never held", Owner: stranger, TTL: long},
			}
			want := []driver.RenewOutcome{
				driver.RenewLost, driver.Renewed, driver.RenewLost,
				driver.RenewLost, driver.Renewed, driver.RenewLost,
			}
			if got := r.first.renewAll(reqs...); !slices.Equal(got, want) {
				r.Errorf("the outcomes are %v, want %v", got, want)
			}
		},
	},
	{
		name:  "batch-each-its-ttl",
		claim: "Every request of a batch has a TTL of its own.",
		run: func(r *run) {
			a, b := r.first.grant("a", medium), r.first.grant("b", medium)
			r.first.renewAll(
				driver.RenewRequest{Name: "a", Owner: a.owner, TTL: long},
				driver.RenewRequest{Name: "b", Owner: b.owner, TTL: short},
			)
			r.first.succeed("b", b.answered.Add(medium))
			r.first.busy("a")
		},
	},
	{
		name:  "batch-duplicates",
		claim: "A hold may be in a batch more than once: each request is answered, and the longest TTL counts.",
		run: func(r *run) {
			h := r.first.grant("name", medium)
			got := r.first.renewAll(
				driver.RenewRequest{Name: "name", Owner: h.owner, TTL: short},
				driver.RenewRequest{Name: "name", Owner: h.owner, TTL: long},
				driver.RenewRequest{Name: "name", Owner: h.owner, TTL: short},
			)
			if want := slices.Repeat([]driver.RenewOutcome{driver.Renewed}, 3); !slices.Equal(got, want) {
				r.Errorf("the outcomes are %v, want %v", got, want)
			}
			h.runOut()
			r.first.busy("name")
		},
	},
	{
		name:  "batch-empty",
		claim: "An empty batch has no outcomes and no error.",
		run:   func(r *run) { r.first.renewAll() },
	},
	{
		name:  "batch-large",
		claim: "A batch of 500 holds is renewed by one call.",
		run: func(r *run) {
			reqs := make([]driver.RenewRequest, 500)
			r.each(len(reqs), func(i int) error {
				req := r.first.request(fmt.Sprintf("large/%d", i), long)
				reqs[i] = driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: long}
				return r.first.mustGrant(req)
			})
			for i, got := range r.first.renewAll(reqs...) {
				if got != driver.Renewed {
					r.Errorf("outcome %d is %d, want Renewed", i, got)
				}
			}
		},
	},
}

// mustGrant is take for goroutines other than that of the case.
func (c *client) mustGrant(req driver.AcquireRequest) error {
	ctx, cancel := c.r.bound()
	defer cancel()
	res, err := c.Acquire(ctx, req)
	if err != nil {
		return fmt.Errorf("acquire of %q: %w", req.Name, err)
	}
	if !res.Granted {
		return fmt.Errorf("acquire of the free name %q was refused", req.Name)
	}
	return nil
}
