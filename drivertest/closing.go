package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// closingCases are about Close.
var closingCases = []testCase{
	{"twice", 0, "Close returns nil, and so does a second Close. Every other call after it returns ErrClosed, nothing goes on for what waits, and a new store can be opened.", func(r *caseRun) {
		h := r.first.hold("name", long)
		before := r.first.hold("released", long)
		before.end()
		if r.features.has(waits) {
			r.first.place("name", long) // checkGoroutines finds what goes on for it.
			r.first.place("name", long)
		}
		calls := r.first.calls(h)
		for range 2 {
			r.first.close()
			for what, call := range calls {
				ctx, cancel := r.callContext()
				if err := call(ctx); !errors.Is(err, driver.ErrClosed) {
					r.Errorf("%s after Close: %v, want ErrClosed", what, err)
				}
				cancel()
			}
		}
		time.Sleep(precision)
		r.open().hold("released", long).expectAbove(before)
	}},
	{"other-stores", processes, "Closing a store leaves the other stores over the same locks, and the holds made through them, as they are.", func(r *caseRun) {
		other := r.other()
		h := other.hold("name", long)
		r.first.close()
		h.expectHeld()
		h.end()
	}},
	{"under-way", 0, "Close may be called during other calls: each of them returns a result or an error, and none hangs.", func(r *caseRun) {
		closed := make(chan struct{})
		r.parallel(8, func(i int) error {
			if i == 0 {
				defer close(closed)
				return r.first.Close()
			}
			for call := range 20 {
				if call == 19 {
					<-closed
				}
				ctx, cancel := r.callContext()
				_, err := r.first.Acquire(ctx, r.first.request("name", long))
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			}
			return nil
		})
	}},
}

func (s *store) close() {
	s.run.Helper()
	if err := s.Close(); err != nil {
		s.run.Errorf("Close: %v", err)
	}
}
