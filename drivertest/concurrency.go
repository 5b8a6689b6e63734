package drivertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// concurrencyCases are about calls at the same time.
var concurrencyCases = []testCase{
	{"exclusion", 0, "Two goroutines never hold the same name at a time, whichever stores they use, and tokens rise in the order of the holds.", func(r *caseRun) {
		stores := []*store{r.first, r.other(), r.other()}
		sections := make([]section, 4)
		r.parallel(24, func(i int) error {
			for round := range 5 {
				n := (i + round) % len(sections)
				e, err := stores[i%len(stores)].waitForGrant(fmt.Sprint("name/", n), 0)
				if err != nil {
					return err
				}
				if err := errors.Join(sections[n].enter(e), e.endOrError()); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"one-winner", 0, "Of attempts made at the same time on a name that is free, or whose hold has expired, exactly one is granted.", func(r *caseRun) {
		stores := []*store{r.first, r.other()}
		const names = 10
		for i := range names {
			r.first.hold(fmt.Sprint("expired/", i), short)
		}
		r.sleepPast(short)
		for i := range names {
			for _, name := range []string{fmt.Sprint("free/", i), fmt.Sprint("expired/", i)} {
				var granted atomic.Int32
				r.parallel(12, func(i int) error {
					e, _, err := stores[i%2].send(r.first.request(name, long))
					if e != nil {
						granted.Add(1)
					}
					return err
				})
				if n := granted.Load(); n != 1 {
					r.Fatalf("of 12 attempts at once on %q %d were granted, want 1", name, n)
				}
			}
		}
	}},
	{"one-owner", 0, "Of Acquires of one owner at the same time one is answered, and the others are refused with an error.", func(r *caseRun) {
		for round := range 10 {
			req := r.first.request(fmt.Sprint("name/", round), long)
			var granted atomic.Int32
			r.parallel(8, func(int) error {
				ctx, cancel := r.callContext()
				defer cancel()
				res, err := r.first.Acquire(ctx, req)
				if res.Granted {
					granted.Add(1)
				} else if err == nil {
					return fmt.Errorf("a second Acquire of an owner: %+v, want an error", res)
				}
				return nil
			})
			if n := granted.Load(); n != 1 {
				r.Fatalf("of 8 Acquires of one owner %d were granted, want 1", n)
			}
		}
	}},
	{"renew-and-release", 0, "A Renew that is overtaken by the Release of its hold does not restore the hold.", func(r *caseRun) {
		for round := range 20 {
			h := r.first.hold(fmt.Sprint("name/", round), long)
			r.parallel(4, func(i int) error {
				if i == 0 {
					return h.endOrError()
				}
				_, _ = h.look() // A quorum may not know what an entry is while it ends.
				return nil
			})
			h.expectGone()
			r.first.expectFree(h.Name)
		}
	}},
}

// A section is entered by one goroutine at a time, if the lock is good. Only the lock under test
// guards its fields, except inside.
type section struct {
	inside atomic.Int32
	last   int64
}

// enter checks that no other goroutine is in the section, and that the tokens rise.
func (s *section) enter(e *entry) error {
	defer s.inside.Add(-1)
	if n := s.inside.Add(1); n != 1 {
		return fmt.Errorf("%d hold %q", n, e.Name)
	}
	time.Sleep(50 * time.Microsecond) // Other goroutines have time to enter.
	if e.store.run.guarantees.Fencing && e.token <= s.last {
		return fmt.Errorf("the token %d of %q comes after %d", e.token, e.Name, s.last)
	}
	s.last = e.token
	return nil
}

// waitForGrant makes attempts until one is granted. It is for any goroutine.
func (s *store) waitForGrant(name string, limit int) (*entry, error) {
	for began := time.Now(); time.Since(began) < s.run.turnTimeout(); time.Sleep(time.Millisecond) {
		if e, _, err := s.send(limited(s.request(name, long), limit)); e != nil || err != nil {
			return e, err
		}
	}
	return nil, fmt.Errorf("%q was not to be had in %v", name, s.run.turnTimeout())
}
