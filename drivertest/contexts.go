package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var contextsCases = []testCase{
	{
		name:  "ended-before",
		claim: "A call returns an error if its context has ended before the call.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			for what, call := range r.first.claimedCalls("name", h.owner) {
				r.expectErrorSoon(what, call)
			}
		},
	},
	{
		name:  "ended-acquire",
		claim: "After an Acquire with a context that has ended, a Release leaves the name free.",
		run: func(r *caseRun) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			for range 20 {
				req := r.first.newRequest("name", long)
				_, err := r.first.Acquire(ctx, req)
				if applied := r.first.releaseAs("name", req.Owner, 0); applied && driver.IsNotApplied(err) {
					r.Errorf("an Acquire took effect, but its error says that it did not: %v", err)
				}
				r.first.expectFree("name")
			}
		},
	},
	{
		name:  "cancel-storm",
		claim: "Attempts that are cancelled at any moment, each followed by its Release, leave every name free.",
		run: func(r *caseRun) {
			const names = 4
			other := r.otherStore()
			r.runParallel(16, func(i int) error {
				store := []*client{r.first, other}[i%2]
				for round := range 15 {
					ends := time.Duration((i*31+round*97)%1500-500) * time.Microsecond
					if err := store.acquireCancelled(fmt.Sprint("name/", (i+round)%names), ends); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range names {
				r.first.expectFree(fmt.Sprint("name/", i))
			}
		},
	},
	{
		name:  "secret",
		claim: "The error of a call with a context that has ended shows no owner.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			for what, call := range r.first.claimedCalls("name", h.owner) {
				r.expectNoSecret("the error of "+what, call(ctx))
			}
		},
	},
}

// claimedCalls returns a call of each method that the store claims to have.
func (c *client) claimedCalls(name, owner string) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := c.Acquire(ctx, c.newRequest(name, long))
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := c.Renew(ctx, []driver.RenewRequest{{Name: name, Owner: owner, TTL: long}})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := c.Release(ctx, driver.ReleaseRequest{Name: name, Owner: c.run.newOwner()})
			return err
		},
	}
	optional := map[features]func(context.Context) error{
		lookup: func(ctx context.Context) error {
			_, _, err := c.Lookup(ctx, name)
			return err
		},
		list: func(ctx context.Context) error {
			var last error
			for _, err := range c.List(ctx, name) {
				last = err
			}
			return last
		},
		breaking: func(ctx context.Context) error {
			_, _, err := c.Break(ctx, driver.BreakRequest{Name: "nobody holds this"})
			return err
		},
		notifying: func(ctx context.Context) error {
			_, err := c.Acquire(ctx, c.queueRequest(name, long))
			return err
		},
		fair: func(ctx context.Context) error {
			req := c.queueRequest(name, long)
			req.Claim = true
			_, err := c.Acquire(ctx, req)
			return err
		},
	}
	names := map[features]string{lookup: "Lookup", list: "List", breaking: "Break", notifying: "Acquire with Queue", fair: "Claim"}
	for need, call := range optional {
		if c.run.features.contains(need) {
			calls[names[need]] = call
		}
	}
	return calls
}

// expectErrorSoon checks that a call with a context that has ended returns an error
// soon.
func (r *caseRun) expectErrorSoon(what string, call func(context.Context) error) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	began := time.Now()
	if err := call(ctx); err == nil {
		r.Errorf("%s with a context that has ended returns no error", what)
	}
	if took := time.Since(began); took > r.tolerance() {
		r.Errorf("%s with a context that has ended took %v", what, took)
	}
}

// acquireCancelled makes an attempt with a context that ends after a while, or has
// ended before. Then it sends the Release that must follow.
func (c *client) acquireCancelled(name string, ends time.Duration) error {
	ctx, cancel := context.WithTimeout(c.run.Context(), ends)
	defer cancel()
	req := c.newRequest(name, long)
	res, err := c.Acquire(ctx, req)
	cleanup, done := c.run.callContext()
	defer done()
	released, releaseErr := c.Release(cleanup, driver.ReleaseRequest{Name: name, Owner: req.Owner})
	switch {
	case releaseErr != nil:
		return fmt.Errorf("release of %q: %w", name, releaseErr)
	case err == nil && released != res.Granted:
		return fmt.Errorf("the Acquire of %q was granted: %v; its Release reports a hold: %v", name, res.Granted, released)
	case released && driver.IsNotApplied(err):
		return fmt.Errorf("an Acquire took effect, but its error says that it did not: %w", err)
	}
	return nil
}
