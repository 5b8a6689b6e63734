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
		claim: "A call whose context has ended before it returns an error.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			for what, call := range r.first.calls("name", h.owner) {
				r.failsSoon(what, call)
			}
		},
	},
	{
		name:  "ended-acquire",
		claim: "An Acquire whose context has ended leaves nothing behind that a Release does not clear.",
		run: func(r *run) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			for range 20 {
				req := r.first.request("name", long)
				_, err := r.first.Acquire(ctx, req)
				if applied := r.first.releaseAs("name", req.Owner, 0); applied && driver.NotApplied(err) {
					r.Errorf("an Acquire took effect, but its error says that it did not: %v", err)
				}
				r.first.free("name")
			}
		},
	},
	{
		name:  "ended-release",
		claim: "A Release whose context has ended either took effect or did not: sent again, the name is free.",
		run: func(r *run) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			for range 20 {
				h := r.first.grant("name", long)
				_, err := r.first.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: h.owner})
				if applied := !h.release(); applied && driver.NotApplied(err) {
					r.Errorf("a Release took effect, but its error says that it did not: %v", err)
				}
				r.first.free("name")
			}
		},
	},
	{
		name:  "cancel-storm",
		claim: "Attempts that are cancelled at any moment, each followed by its Release, leave every name free.",
		run: func(r *run) {
			const names = 4
			other := r.other()
			r.each(16, func(i int) error {
				store := []*client{r.first, other}[i%2]
				for round := range 15 {
					ends := time.Duration((i*31+round*97)%1500-500) * time.Microsecond
					if err := store.cancelled(fmt.Sprint("name/", (i+round)%names), ends); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range names {
				r.first.free(fmt.Sprint("name/", i))
			}
		},
	},
	{
		name:  "secret",
		claim: "The error of a call whose context has ended shows no owner.",
		run: func(r *run) {
			h := r.first.grant("name", long)
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			for what, call := range r.first.calls("name", h.owner) {
				r.hides("the error of "+what, call(ctx))
			}
		},
	},
}

// calls is one call of each method that the store claims to have.
func (c *client) calls(name, owner string) map[string]func(context.Context) error {
	calls := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := c.Acquire(ctx, c.request(name, long))
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := c.Renew(ctx, []driver.RenewRequest{{Name: name, Owner: owner, TTL: long}})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := c.Release(ctx, driver.ReleaseRequest{Name: name, Owner: c.r.owner()})
			return err
		},
	}
	watcher, isWatcher := c.Store.(driver.Watcher)
	optional := map[needs]func(context.Context) error{
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
			_, _, err := c.Break(ctx, "nobody holds this")
			return err
		},
		push: func(ctx context.Context) error {
			_, err := watcher.Watch(ctx, name)
			return err
		},
	}
	names := map[needs]string{lookup: "Lookup", list: "List", breaking: "Break", push: "Watch"}
	for need, call := range optional {
		if c.r.have.has(need) && (need != push || isWatcher) {
			calls[names[need]] = call
		}
	}
	return calls
}

// failsSoon makes a call with a context that has ended. Watch may succeed: its
// watch has ended then.
func (r *run) failsSoon(what string, call func(context.Context) error) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	began := time.Now()
	if err := call(ctx); err == nil && what != "Watch" {
		r.Errorf("%s with a context that has ended returns no error", what)
	}
	if took := time.Since(began); took > r.slack() {
		r.Errorf("%s with a context that has ended took %v", what, took)
	}
}

// cancelled makes an attempt with a context that ends after a while, or has
// ended before, and then the Release that must follow it.
func (c *client) cancelled(name string, ends time.Duration) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), ends)
	defer cancel()
	req := c.request(name, long)
	res, err := c.Acquire(ctx, req)
	cleanup, done := c.r.bound()
	defer done()
	released, releaseErr := c.Release(cleanup, driver.ReleaseRequest{Name: name, Owner: req.Owner})
	switch {
	case releaseErr != nil:
		return fmt.Errorf("release of %q: %w", name, releaseErr)
	case err == nil && released != res.Granted:
		return fmt.Errorf("the Acquire of %q was granted: %v; its Release reports a hold: %v", name, res.Granted, released)
	case released && driver.NotApplied(err):
		return fmt.Errorf("an Acquire took effect, but its error says that it did not: %w", err)
	}
	return nil
}
