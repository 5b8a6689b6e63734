package queuetest

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Mark is the name of a lock that no history has.
const Mark = "mark"

// Settled returns a store that returns from each call when the notices that the call leads to have
// come. Mark has the store notify itself of the lock Mark with a token, behind all notices that
// were sent before.
func Settled(s driver.Notifier, mark func(token int64)) driver.Notifier {
	return &settled{Notifier: s, mark: mark, heard: make(chan int64, 100)}
}

type settled struct {
	driver.Notifier
	mark  func(token int64)
	last  int64
	heard chan int64
}

func (s *settled) Notify(f func(name, owner string, token int64)) (stop func()) {
	stop = s.Notifier.Notify(func(name, owner string, token int64) {
		switch name {
		case Mark:
			s.heard <- token
		case "": // The connection for notices was made.
		default:
			f(name, owner, token)
		}
	})
	s.wait()
	return stop
}

// wait returns when the notices have come that were sent before.
func (s *settled) wait() {
	s.last++
	s.mark(s.last)
	for {
		select {
		case token := <-s.heard:
			if token == s.last {
				return
			}
		case <-time.After(time.Second): // The store does not listen yet.
			s.mark(s.last)
		}
	}
}

func (s *settled) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	defer s.wait()
	return s.Notifier.Acquire(ctx, req)
}

func (s *settled) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	defer s.wait()
	return s.Notifier.Renew(ctx, reqs)
}

func (s *settled) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	defer s.wait()
	return s.Notifier.Release(ctx, req)
}

func (s *settled) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	defer s.wait()
	return s.Notifier.Lookup(ctx, name)
}

func (s *settled) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	defer s.wait()
	return s.Notifier.Break(ctx, name, token)
}

func (s *settled) List(context.Context, string) iter.Seq2[driver.Record, error] { panic("not called") }
