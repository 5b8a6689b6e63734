// Package faultstore puts faults between package holdfast and a store, for
// tests: requests that fail before they are applied, replies that are lost
// after, requests that hang.
package faultstore

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Op names a method of a store.
type Op string

// The methods that can be intercepted.
const (
	Acquire Op = "acquire"
	Renew   Op = "renew"
	Release Op = "release"
	Lookup  Op = "lookup"
	Break   Op = "break"
	Watch   Op = "watch"
)

// A Fault is told of a call and decides what becomes of it: it may call apply,
// at most once, to let the store carry it out, and returns the error that the
// caller is to see instead of the result, or nil for the result.
type Fault func(ctx context.Context, op Op, apply func()) error

// Errors of the faults below.
var (
	ErrReplyLost = errors.New("reply lost")
	ErrRefused   = errors.Join(errors.New("connection refused"), driver.ErrNotApplied)
)

// LoseReply applies the request and loses the answer.
func LoseReply(_ context.Context, _ Op, apply func()) error {
	apply()
	return ErrReplyLost
}

// Refuse does not let the request through, and says so.
func Refuse(context.Context, Op, func()) error { return ErrRefused }

// Hang swallows the request until its context ends.
func Hang(ctx context.Context, _ Op, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// Store is a store with faults. Its zero value is not usable; see Wrap.
type Store struct {
	driver.Store
	can driver.Guarantees

	mu    sync.Mutex
	fault map[Op]Fault
	calls map[Op]int
}

// Wrap returns a Store that passes everything on until a fault is set. It
// claims to be of scope network, so that the faults meet with the same guards as
// those of a real network.
func Wrap(store driver.Store) *Store {
	can := store.Guarantees()
	can.Scope, can.Blocking = driver.ScopeNetwork, driver.BlocksForLong
	return &Store{Store: store, can: can, fault: map[Op]Fault{}, calls: map[Op]int{}}
}

// Blocks makes the store one that claims this of itself: the faults that are set
// must keep to it.
func (s *Store) Blocks(b driver.Blocking) *Store {
	s.can.Blocking = b
	return s
}

// NoPush makes the store one that wakes nobody.
func (s *Store) NoPush() *Store {
	s.can.Push = false
	return s
}

// Set makes every later call of op meet with fault; nil ends that.
func (s *Store) Set(op Op, fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault[op] = fault
}

// Once makes the next call of op meet with fault.
func (s *Store) Once(op Op, fault Fault) {
	s.Set(op, func(ctx context.Context, op Op, apply func()) error {
		s.Set(op, nil)
		return fault(ctx, op, apply)
	})
}

// Calls reports how often op was called.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// call lets a request meet with the fault that is set.
func (s *Store) call(ctx context.Context, op Op, apply func() error) error {
	s.mu.Lock()
	s.calls[op]++
	fault := s.fault[op]
	s.mu.Unlock()
	if fault == nil {
		return apply()
	}
	var result error
	if err := fault(ctx, op, func() { result = apply() }); err != nil {
		return err
	}
	return result
}

// Guarantees implements driver.Store.
func (s *Store) Guarantees() driver.Guarantees { return s.can }

// Acquire implements driver.Store. What is carried out is carried out even if
// ctx has ended: it stands for a request that is already on its way.
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	var done driver.AcquireResult
	err = s.call(ctx, Acquire, func() error {
		done, err = s.Store.Acquire(context.WithoutCancel(ctx), req)
		return err
	})
	if err == nil {
		res = done
	}
	return res, err
}

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) (res []driver.RenewOutcome, err error) {
	var done []driver.RenewOutcome
	err = s.call(ctx, Renew, func() error {
		done, err = s.Store.Renew(context.WithoutCancel(ctx), reqs)
		return err
	})
	if err == nil {
		res = done
	}
	return res, err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (ours bool, err error) {
	var done bool
	err = s.call(ctx, Release, func() error {
		done, err = s.Store.Release(context.WithoutCancel(ctx), req)
		return err
	})
	return done && err == nil, err
}

// Lookup implements driver.Store.
func (s *Store) Lookup(ctx context.Context, name string) (rec driver.Record, held bool, err error) {
	err = s.call(ctx, Lookup, func() error {
		rec, held, err = s.Store.Lookup(ctx, name)
		return err
	})
	return rec, held, err
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return s.Store.List(ctx, prefix)
}

// Break implements driver.Store.
func (s *Store) Break(ctx context.Context, name string) (rec driver.Record, held bool, err error) {
	err = s.call(ctx, Break, func() error {
		rec, held, err = s.Store.Break(ctx, name)
		return err
	})
	return rec, held, err
}

// Watch implements driver.Watcher if the store below does. A fault that neither
// applies it nor returns an error makes a watch that never signals.
func (s *Store) Watch(ctx context.Context, name string) (wake <-chan struct{}, err error) {
	watcher, ok := s.Store.(driver.Watcher)
	if !ok || !s.can.Push {
		return nil, driver.ErrUnsupported
	}
	err = s.call(ctx, Watch, func() error {
		wake, err = watcher.Watch(ctx, name)
		return err
	})
	if wake == nil && err == nil {
		wake = make(chan struct{})
	}
	return wake, err
}
