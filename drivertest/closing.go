package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var closingCases = []testCase{
	{
		name:  "twice",
		claim: "Close returns nil, and so does a second Close.",
		run: func(r *caseRun) {
			r.first.acquireFree("name", long).releaseHeld()
			for range 2 {
				if err := r.first.Close(); err != nil {
					r.Errorf("Close: %v", err)
				}
			}
		},
	},
	{
		name:  "later-calls",
		claim: "Every call after Close returns ErrClosed.",
		run: func(r *caseRun) {
			calls := r.first.claimedCalls("name", r.newOwner())
			if err := r.first.Close(); err != nil {
				r.Fatalf("Close: %v", err)
			}
			for what, call := range calls {
				ctx, cancel := r.callContext()
				if err := call(ctx); !errors.Is(err, driver.ErrClosed) {
					r.Errorf("%s after Close: %v, want ErrClosed", what, err)
				}
				cancel()
			}
		},
	},
	{
		name:     "other-stores",
		claim:    "Closing a store leaves the other stores over the same locks, and the holds taken through them, as they are.",
		requires: processes,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := other.acquireFree("name", long)
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			h.expectStillHeld()
			h.releaseHeld()
		},
	},
	{
		name:  "anew",
		claim: "After Close a new store can be opened over the same locks. It grants higher tokens.",
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			h.releaseHeld()
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			time.Sleep(precision)
			r.expectHigherToken(h, r.openStore().acquireFree("name", long))
		},
	},
	{
		name:  "under-way",
		claim: "Close may be called during other calls: each of them returns a result or an error, and none hangs.",
		run: func(r *caseRun) {
			closed := make(chan struct{})
			r.runParallel(8, func(i int) error {
				if i == 0 {
					defer close(closed)
					return r.first.Close()
				}
				for call := range 20 {
					if call == 19 {
						<-closed
					}
					ctx, cancel := r.callContext()
					_, err := r.first.Acquire(ctx, r.first.newRequest("name", long))
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						return err
					}
				}
				return nil
			})
		},
	},
	{
		name:     "notices",
		claim:    "Close ends what a store does for its waiters.",
		requires: notifying,
		without:  fair,
		run: func(r *caseRun) {
			// checkGoroutines finds what goes on after the case.
			for _, name := range []string{"a", "b"} {
				r.first.acquireFree(name, long)
				r.first.waitForAsk(name, long)
				r.first.waitForAsk(name, long)
			}
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
		},
	},
}
