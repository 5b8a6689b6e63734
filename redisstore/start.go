package redisstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Starter = (*Store)(nil)

// StartAcquire implements [driver.Starter].
func (s *Store) StartAcquire(ctx context.Context, req driver.AcquireRequest, done func(driver.AcquireResult, error)) {
	c, err := s.acquireCall(&req)
	if err == nil {
		err = s.usable(ctx)
	}
	if err != nil {
		done(driver.AcquireResult{}, err)
		return
	}
	name := req.Name
	s.start(ctx, c, func() {
		var res driver.AcquireResult
		reply, err := s.read(c, c.err)
		if err == nil {
			res, err = granted(name, reply)
		}
		done(res, err)
	})
}

// StartRelease implements [driver.Starter].
func (s *Store) StartRelease(ctx context.Context, req driver.ReleaseRequest, done func(bool, error)) {
	c, err := s.releaseCall(&req)
	if err == nil {
		err = s.usable(ctx)
	}
	if err != nil {
		done(false, err)
		return
	}
	s.start(ctx, c, func() {
		reply, err := s.read(c, c.err)
		done(err == nil && reply == int64(1), err)
	})
}

// start puts a call into its lane. It is not sent after the end of ctx; else it
// ends when its batch does, within requestBound.
func (s *Store) start(ctx context.Context, c *call, then func()) {
	c.ctx, c.then = ctx, then
	s.starts.Store(true)
	s.lane(c.lock).put(c)
}
