// Package faultstore puts faults between package holdfast and a store, for tests: requests that
// fail before they are applied, replies that are lost after, requests that hang, and notices that
// are lost, late, or doubled.
package faultstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	Notice  Op = "notice" // the call of a function that is registered by Notify
)

// A Fault is called in place of a store's method, and determines the outcome. It may call apply, to
// let the store carry out the call, also twice or after it has returned. It returns the error that
// the caller receives instead of the result, or nil for the result. That of a notice does not
// block, and its error is dropped.
type Fault func(ctx context.Context, op Op, apply func()) error

// Errors of the faults below.
var (
	ErrReplyLost = errors.New("reply lost")
	ErrRefused   = errors.Join(errors.New("connection refused"), driver.ErrNotApplied)
)

// LoseReply applies the request and loses the reply.
func LoseReply(_ context.Context, _ Op, apply func()) error {
	apply()
	return ErrReplyLost
}

// Refuse does not apply the request. Its error matches driver.ErrNotApplied.
func Refuse(context.Context, Op, func()) error { return ErrRefused }

// Hang does not apply the request, and returns when its context ends.
func Hang(ctx context.Context, _ Op, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// A Store is a store with faults. Wrap returns one; the zero value is not usable.
type Store struct {
	driver.Store
	guarantees driver.Guarantees

	mu     sync.Mutex
	faults map[Op]Fault
	bend   func(any)
	calls  map[Op]int

	listening sync.RWMutex // locked for reading while a listener is called
	listeners map[*listener]struct{}
}

// A listener is a function that is registered by Notify.
type listener func(name, owner string, token int64)

// Wrap returns a Store that passes every call on until a fault is set. It claims to be outside of
// the process, so that package holdfast guards against its faults as against those of a network.
func Wrap(store driver.Store) *Store {
	guarantees := store.Guarantees()
	guarantees.InProcess, guarantees.Crash = false, driver.FateKept
	return &Store{Store: store, guarantees: guarantees, bend: func(any) {}, faults: map[Op]Fault{}, calls: map[Op]int{}, listeners: map[*listener]struct{}{}}
}

// Unfair makes the store one without a queue. It makes no places, and has the owners of a name look
// when an entry is released or broken through it.
func (s *Store) Unfair() *Store {
	s.guarantees.Queue = false
	return s
}

// Silent makes the store one without a queue that sends no notices.
func (s *Store) Silent() *Store {
	s.Store = struct{ driver.Store }{s.Store}
	return s.Unfair()
}

// Set applies fault to every later call of op. A nil fault ends that.
func (s *Store) Set(op Op, fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = fault
}

// Once applies fault to the next call of op.
func (s *Store) Once(op Op, fault Fault) {
	s.Set(op, func(ctx context.Context, op Op, apply func()) error {
		s.Set(op, nil)
		return fault(ctx, op, apply)
	})
}

// Bend has bend change the guarantees, and each request, result and error from now on. It gets
// pointers to them.
func (s *Store) Bend(bend func(any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bend = bend
}

// Bent returns a function for Bend that changes the values of one type.
func Bent[T any](change func(*T)) func(any) {
	return func(v any) {
		if v, ok := v.(*T); ok {
			change(v)
		}
	}
}

// Calls returns how often op was called.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// count counts a call, and returns the fault that is set for it, and what bends it.
func (s *Store) count(op Op) (fault Fault, bend func(any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	return s.faults[op], s.bend
}

// call makes a call with the fault that is set for it. When the fault calls apply, the store
// carries the call out even if ctx has ended: it represents a request that was sent before.
func call[Request, Result any](
	s *Store, ctx context.Context, op Op, req Request, method func(context.Context, Request) (Result, error),
) (Result, error) {
	fault, bend := s.count(op)
	send := func(ctx context.Context, req Request) (Result, error) {
		bend(&req)
		result, err := method(ctx, req)
		bend(&result)
		bend(&err)
		return result, err
	}
	if fault == nil {
		return send(ctx, req)
	}
	var reply atomic.Pointer[func() (Result, error)] // not read once it is late
	err := fault(ctx, op, func() {
		result, err := send(context.WithoutCancel(ctx), req)
		reply.Store(new(func() (Result, error) { return result, err }))
	})
	if f := reply.Load(); err == nil && f != nil {
		return (*f)()
	}
	return *new(Result), err
}

// Guarantees implements driver.Store.
func (s *Store) Guarantees() driver.Guarantees {
	s.mu.Lock()
	defer s.mu.Unlock()
	guarantees := s.guarantees
	s.bend(&guarantees)
	return guarantees
}

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	if !s.guarantees.Queue && req.Floor == 0 { // a Floor with a Place is refused
		req.Place = 0
	}
	return call(s, ctx, Acquire, req, s.Store.Acquire)
}

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	return call(s, ctx, Renew, reqs, s.Store.Renew)
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return call(s, ctx, Release, req, func(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
		found, err := s.Store.Release(ctx, req)
		s.ended(req.Name, found)
		return found, err
	})
}

// Lookup implements driver.Store.
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return call(s, ctx, Lookup, name, s.Store.Lookup)
}

// Break implements driver.Store.
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return call(s, ctx, Break, token, func(ctx context.Context, token int64) ([]driver.Record, error) {
		records, err := s.Store.Break(ctx, name, token)
		s.ended(name, len(records) > 0)
		return records, err
	})
}

// ended has all owners of a name look, if it has no queue and some entry has ended.
func (s *Store) ended(name string, some bool) {
	if s.guarantees.Queue || !some {
		return
	}
	s.listening.RLock()
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.listening.RUnlock()
	for _, l := range listeners {
		s.notify(l, name, "", 0)
	}
}

// notify sends a notice to a listener, with the fault that is set for it.
func (s *Store) notify(l *listener, name, owner string, token int64) {
	apply := func() {
		s.listening.RLock()
		defer s.listening.RUnlock()
		if _, ok := s.listeners[l]; ok {
			(*l)(name, owner, token)
		}
	}
	if fault, _ := s.count(Notice); fault != nil {
		_ = fault(context.Background(), Notice, apply)
	} else {
		apply()
	}
}

// Notify implements driver.Notifier if the wrapped store does. A notice that is late does not come
// after stop.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	store, ok := s.Store.(driver.Notifier)
	if !ok {
		return func() {}
	}
	l := (*listener)(&f)
	s.listening.Lock()
	s.listeners[l] = struct{}{}
	s.listening.Unlock()
	stopStore := store.Notify(func(name, owner string, token int64) { s.notify(l, name, owner, token) })
	return func() {
		stopStore()
		s.listening.Lock()
		delete(s.listeners, l)
		s.listening.Unlock()
	}
}
