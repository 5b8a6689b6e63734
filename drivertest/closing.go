package drivertest

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var closingCases = []testCase{
	{
		name:  "twice",
		claim: "Close returns nil, and so does a second Close.",
		run: func(r *run) {
			r.first.grant("name", long).end()
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
		run: func(r *run) {
			calls := r.first.calls("name", r.owner())
			if err := r.first.Close(); err != nil {
				r.Fatalf("Close: %v", err)
			}
			for what, call := range calls {
				ctx, cancel := r.bound()
				if err := call(ctx); !errors.Is(err, driver.ErrClosed) {
					r.Errorf("%s after Close: %v, want ErrClosed", what, err)
				}
				cancel()
			}
		},
	},
	{
		name:  "other-stores",
		claim: "Closing a store leaves the other stores over the same locks, and the holds taken through them, as they are.",
		needs: processes,
		run: func(r *run) {
			other := r.other()
			h := other.grant("name", long)
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			h.intact()
			h.end()
		},
	},
	{
		name:  "anew",
		claim: "After Close a new store can be opened over the same locks.",
		run: func(r *run) {
			r.first.grant("name", long).end()
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
			r.open().grant("name", long).end()
		},
	},
	{
		name:  "under-way",
		claim: "Close may be called while calls are under way: each is answered or returns an error, and none hangs.",
		run: func(r *run) {
			closed := make(chan struct{})
			r.each(8, func(i int) error {
				if i == 0 {
					defer close(closed)
					return r.first.Close()
				}
				for call := range 20 {
					if call == 19 {
						<-closed
					}
					ctx, cancel := r.bound()
					_, err := r.first.Acquire(ctx, r.first.request("name", long))
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
		name:  "watches",
		claim: "Close leaves no watch behind.",
		needs: push,
		run: func(r *run) {
			// What is left behind is found when the case is over.
			for _, name := range []string{"a", "b", "b"} {
				r.first.watch(name)
			}
			if err := r.first.Close(); err != nil {
				r.Errorf("Close: %v", err)
			}
		},
	},
}
