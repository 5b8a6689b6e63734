package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var startCases = []testCase{
	{
		name:  "outcomes",
		claim: "A request that is begun ends as one that is made: granted, refused with what is in the way, released, not held.",
		needs: starting,
		run: func(r *run) {
			mine, other := r.first.request("name", long), r.first.request("name", long)
			r.ends("StartAcquire of a free name", r.startAcquire(mine), "granted")
			r.ends("StartAcquire of a name that is held", r.startAcquire(other), "refused")
			r.ends("StartRelease by another", r.startRelease(other), "not held")
			r.ends("StartRelease", r.startRelease(mine), "released")
			r.ends("the second StartRelease", r.startRelease(mine), "not held")
			r.first.free("name")
		},
	},
	{
		name:  "chain",
		claim: "What is begun when a request ends takes effect after it, also from within done.",
		needs: starting,
		run: func(r *run) {
			store := r.first.Store.(driver.Starter)
			ended := make(chan error, 1)
			var next func(left int)
			next = func(left int) {
				req := r.first.request("name", long)
				store.StartAcquire(r.Context(), req, func(res driver.AcquireResult, err error) {
					if err != nil || !res.Granted {
						ended <- fmt.Errorf("StartAcquire, %d before the last: %+v, %v", left, res, err)
						return
					}
					store.StartRelease(r.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}, func(had bool, err error) {
						switch {
						case err != nil || !had:
							ended <- fmt.Errorf("StartRelease, %d before the last: %v, %v", left, had, err)
						case left == 0:
							ended <- nil
						default:
							next(left - 1)
						}
					})
				})
			}
			next(50)
			select {
			case err := <-ended:
				if err != nil {
					r.Error(err)
				}
			case <-time.After(r.patience()):
				r.Error("a request has no outcome")
			}
		},
	},
	{
		name:  "in-vain",
		claim: "A request that cannot be made ends, too, and once: with ErrClosed, or with the end of its context.",
		needs: starting,
		run: func(r *run) {
			store := r.open()
			req := store.request("name", long)
			over, cancel := context.WithCancel(r.Context())
			cancel()
			r.ends("StartAcquire when its context has ended", r.acquireBy(over, store, req), context.Canceled.Error())
			r.ends("StartRelease when its context has ended", r.releaseBy(over, store, req), context.Canceled.Error())
			if err := store.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			ctx, cancel := r.bound()
			defer cancel()
			r.ends("StartAcquire on a closed store", r.acquireBy(ctx, store, req), driver.ErrClosed.Error())
			r.ends("StartRelease on a closed store", r.releaseBy(ctx, store, req), driver.ErrClosed.Error())
			r.first.free("name")
		},
	},
}

func (r *run) startAcquire(req driver.AcquireRequest) <-chan string {
	return r.acquireBy(r.Context(), r.first, req)
}

func (r *run) startRelease(req driver.AcquireRequest) <-chan string {
	return r.releaseBy(r.Context(), r.first, req)
}

// acquireBy begins an acquisition. The channel gets its outcome.
func (r *run) acquireBy(ctx context.Context, c *client, req driver.AcquireRequest) <-chan string {
	outcome := make(chan string, 2) // room for one too many
	c.Store.(driver.Starter).StartAcquire(ctx, req, func(res driver.AcquireResult, err error) {
		switch {
		case err != nil:
			outcome <- reason(err)
		case res.Granted:
			outcome <- "granted"
		case res.Held.Name == req.Name:
			outcome <- "refused"
		default:
			outcome <- "refused for no reason"
		}
	})
	return outcome
}

// releaseBy begins the release of what a request has acquired.
func (r *run) releaseBy(ctx context.Context, c *client, acquired driver.AcquireRequest) <-chan string {
	outcome := make(chan string, 2)
	req := driver.ReleaseRequest{Name: acquired.Name, Owner: acquired.Owner}
	c.Store.(driver.Starter).StartRelease(ctx, req, func(ended bool, err error) {
		switch {
		case err != nil:
			outcome <- reason(err)
		case ended:
			outcome <- "released"
		default:
			outcome <- "not held"
		}
	})
	return outcome
}

func reason(err error) string {
	for _, known := range []error{driver.ErrClosed, context.Canceled} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// ends checks the outcome of a request that was begun, and that there is only one.
func (r *run) ends(what string, outcome <-chan string, want string) {
	r.Helper()
	limit := time.NewTimer(r.patience())
	defer limit.Stop()
	select {
	case got := <-outcome:
		if got != want {
			r.Errorf("%s: %s, want: %s", what, got, want)
		}
	case <-limit.C:
		r.Fatalf("%s: no outcome", what)
	}
	select {
	case got := <-outcome:
		r.Errorf("%s has a second outcome: %s", what, got)
	default:
	}
}
