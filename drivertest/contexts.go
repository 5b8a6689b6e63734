package drivertest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// contextsCases are about calls whose contexts end.
var contextsCases = []testCase{
	{"ended-before", 0, "A call whose context has ended before it returns soon, with an error that shows no owner.", func(r *caseRun) {
		h := r.first.hold("name", long)
		for what, call := range r.first.calls(h) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			began := time.Now()
			err := call(ctx)
			if err == nil {
				r.Errorf("%s with a context that has ended returns no error", what)
			}
			r.expectNoSecret("the error of "+what, err)
			if took := time.Since(began); took > r.tolerance() {
				r.Errorf("%s with a context that has ended took %v", what, took)
			}
		}
	}},
	{"cancel-storm", 0, "Attempts that are cancelled at any moment, each followed by its Release, leave every name free, and ErrNotApplied is true.", func(r *caseRun) {
		const names = 4
		stores := []*store{r.first, r.other()}
		r.parallel(16, func(i int) error {
			for round := range 15 {
				ends := time.Duration((i*31+round*97)%1500-500) * time.Microsecond
				if err := stores[i%2].acquireCancelled(fmt.Sprint("name/", (i+round)%names), ends); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range names {
			r.first.expectFree(fmt.Sprint("name/", i))
		}
	}},
}

// calls returns a call of each method that the store supports. h is a hold.
func (s *store) calls(h *entry) map[string]func(context.Context) error {
	acquire := func(req driver.Request) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Acquire(ctx, req)
			return err
		}
	}
	calls := map[string]func(context.Context) error{
		"Acquire":            acquire(s.request(h.Name, long)),
		"Acquire with Place": acquire(s.placeRequest(h.Name, long)),
		"Renew": func(ctx context.Context) error {
			entries, err := s.Renew(ctx, []driver.RenewRequest{h.renewRequest(0, long)})
			if err != nil && len(entries) > 0 && entries[0] != (driver.Entry{}) {
				return nil // An answer is no error.
			}
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: h.Name, Owner: s.run.newOwner()})
			return err
		},
	}
	if s.run.features.has(lookup) {
		calls["Lookup"] = func(ctx context.Context) error {
			_, err := s.Lookup(ctx, h.Name)
			return err
		}
	}
	if s.run.features.has(list) {
		calls["List"] = func(ctx context.Context) (last error) {
			for _, last = range s.List(ctx, h.Name) {
			}
			return last
		}
	}
	if s.run.features.has(breaking) {
		calls["Break"] = func(ctx context.Context) error {
			_, err := s.Break(ctx, "nobody holds this", 0)
			return err
		}
	}
	return calls
}

// acquireCancelled makes an attempt with a context that ends after a while, or has ended before.
// Then it sends the Release that must follow.
func (s *store) acquireCancelled(name string, ends time.Duration) error {
	ctx, cancel := context.WithTimeout(s.run.Context(), ends)
	defer cancel()
	e := &entry{store: s, Request: s.request(name, long)}
	res, err := s.Acquire(ctx, e.Request)
	cleanup, done := s.run.callContext()
	defer done()
	released, releaseErr := s.Release(cleanup, driver.ReleaseRequest{Name: name, Owner: e.Owner})
	switch {
	case releaseErr != nil:
		return fmt.Errorf("release of %q: %w", name, releaseErr)
	case err == nil && released != res.Granted:
		return fmt.Errorf("acquire of %q: %+v; its Release reports a hold: %v", name, res, released)
	case released && driver.IsNotApplied(err):
		return fmt.Errorf("an Acquire took effect, but its error says that it did not: %w", err)
	}
	return nil
}
