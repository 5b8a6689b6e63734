//go:build unix

package pgstore

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
)

// The store keeps the rule of the queue.
func TestHistories(t *testing.T) {
	t.Parallel()
	together := func(t *testing.T, play func(*testing.T)) {
		t.Parallel()
		play(t)
	}
	queuetest.Run(t, together, 400*time.Millisecond, func(tb testing.TB) driver.Notifier {
		s := open(tb)
		s.startListening(true)
		return &settled{Store: s, heard: make(chan struct{}, 1)}
	})
}

// A settled store returns from each call when the notices that the call leads to have come.
type settled struct {
	*Store
	heard chan struct{}
}

func (s *settled) Notify(f func(name, owner string, token int64)) (stop func()) {
	stop = s.Store.Notify(func(name, owner string, token int64) {
		switch {
		case name == "barrier":
			s.heard <- struct{}{}
		case name != "":
			f(name, owner, token)
		}
	})
	s.wait()
	return stop
}

// wait returns when the notices have come that were sent before.
func (s *settled) wait() {
	s.listener.expect("barrier", "barrier", time.Hour)
	channel := s.listener.channel + " " + tagOf("barrier", "barrier") + " 0"
	for {
		s.tell([]string{channel})
		select {
		case <-s.heard:
			return
		case <-time.After(time.Second): // the store does not listen yet
		}
	}
}

func (s *settled) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	defer s.wait()
	return s.Store.Acquire(ctx, req)
}

func (s *settled) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	defer s.wait()
	return s.Store.Renew(ctx, reqs)
}

func (s *settled) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	defer s.wait()
	return s.Store.Release(ctx, req)
}

func (s *settled) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	defer s.wait()
	return s.Store.Lookup(ctx, name)
}

func (s *settled) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	defer s.wait()
	return s.Store.Break(ctx, name, token)
}

func (s *settled) List(context.Context, string) iter.Seq2[driver.Record, error] { panic("not called") }
