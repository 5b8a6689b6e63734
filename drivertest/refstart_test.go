package drivertest

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

func (s *refStore) StartAcquire(ctx context.Context, req driver.AcquireRequest, done func(driver.AcquireResult, error)) {
	res, err := s.Acquire(ctx, req)
	if err == nil && !res.Granted && s.w.has(startedRefusalIsEmpty) {
		res = driver.AcquireResult{}
	}
	s.tell(err, func() { done(res, err) })
}

func (s *refStore) StartRelease(ctx context.Context, req driver.ReleaseRequest, done func(bool, error)) {
	if s.w.has(startedEndsTooSoon) {
		done(true, nil)
		_, _ = s.Release(ctx, req)
		return
	}
	ended, err := s.Release(ctx, req)
	s.tell(err, func() { done(ended || s.w.has(startedReleaseIsTrue), err) })
}

// tell tells the outcome of a request that was begun.
func (s *refStore) tell(err error, done func()) {
	if err != nil && s.w.has(startedInVainIsForgotten) {
		return
	}
	done()
	if err != nil && s.w.has(startedEndsTwice) {
		done()
	}
}
