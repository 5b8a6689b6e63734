// Package faultstore puts faults between package holdfast and a store, for
// tests: requests that fail before they are applied, replies that are lost
// after, requests that hang, and notices that are lost, late, or doubled.
package faultstore

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/notices"
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

// A Fault is called in place of a store's method, and determines the outcome. It may
// call apply, at most once, to let the store carry out the call. It returns the error
// that the caller receives instead of the result, or nil for the result.
//
// The fault of a notice does not block. It may call apply more than once, and after it has
// returned. Its error is dropped.
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

// Delay returns a fault that delivers a notice after d.
func Delay(d time.Duration) Fault {
	return func(_ context.Context, _ Op, apply func()) error {
		time.AfterFunc(d, apply)
		return nil
	}
}

// A Store is a store with faults. Wrap returns one; the zero value is not usable.
type Store struct {
	driver.Store
	guarantees driver.Guarantees
	silent     bool             // it sends no notices
	asks       notices.Registry // of a store that is not Fair

	mu      sync.Mutex
	faults  map[Op]Fault
	calls   map[Op]int
	waiters map[[2]string]time.Time // of a store that is not Fair: by name and owner, until when they wait
}

// Wrap returns a Store that passes every call on until a fault is set. It
// claims to be of scope network, so that package holdfast guards against its faults
// as against those of a real network.
func Wrap(store driver.Store) *Store {
	guarantees := store.Guarantees()
	guarantees.Scope = driver.ScopeNetwork
	return &Store{
		Store: store, guarantees: guarantees,
		faults: map[Op]Fault{}, calls: map[Op]int{}, waiters: map[[2]string]time.Time{},
	}
}

// Unfair makes the store one that is not Fair and sends Ask notices of what happens through it. It
// has exclusive locks alone: without places it could not keep readers from overtaking a writer.
func (s *Store) Unfair() *Store {
	s.guarantees.Fair, s.guarantees.Shared, s.guarantees.Limited = false, false, false
	return s
}

// Silent makes the store one that is not Fair and sends no notices.
func (s *Store) Silent() *Store {
	s.silent = true
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

// Calls returns how often op was called.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// count counts a call, and returns the fault that is set for it.
func (s *Store) count(op Op) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	return s.faults[op]
}

// applyFault makes a call with the fault that is set for it.
func (s *Store) applyFault(ctx context.Context, op Op, apply func() error) error {
	fault := s.count(op)
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
func (s *Store) Guarantees() driver.Guarantees { return s.guarantees }

// Acquire implements driver.Store. When the fault calls apply, the request is carried
// out even if ctx has ended: it represents a request that was sent before.
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if (req.Claim || req.Limit != 0) && !s.guarantees.Fair {
		return res, driver.ErrUnsupported
	}
	queue := req.Queue
	if !s.guarantees.Fair {
		req.Queue = 0
	}
	var done driver.AcquireResult
	err = s.applyFault(ctx, Acquire, func() error {
		waits := queue > 0 && !s.guarantees.Fair && !s.silent
		if waits {
			s.setWaiter(req.Name, req.Owner, queue)
		}
		done, err = s.Store.Acquire(context.WithoutCancel(ctx), req)
		if done.Granted {
			s.setWaiter(req.Name, req.Owner, 0)
		}
		done.Queued = done.Queued || waits && err == nil && !done.Granted
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
	err = s.applyFault(ctx, Renew, func() error {
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
	err = s.applyFault(ctx, Release, func() error {
		done, err = s.Store.Release(context.WithoutCancel(ctx), req)
		if done {
			s.ask(req.Name)
		}
		return err
	})
	return done && err == nil, err
}

// setWaiter registers an owner for Ask notices of a name, or prolongs that. With 0 it ends it.
func (s *Store) setWaiter(name, owner string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, until := [2]string{name, owner}, time.Now().Add(wait)
	if wait == 0 {
		delete(s.waiters, key)
	} else if until.After(s.waiters[key]) {
		s.waiters[key] = until
	}
}

// ask sends an Ask notice to each owner that waits for a name.
func (s *Store) ask(name string) {
	var owners []string
	s.mu.Lock()
	for key, until := range s.waiters {
		switch {
		case !time.Now().Before(until):
			delete(s.waiters, key)
		case key[0] == name:
			owners = append(owners, key[1])
		}
	}
	s.mu.Unlock()
	for _, owner := range owners {
		s.asks.Send(driver.Notice{Kind: driver.Ask, Name: name, Owner: owner})
	}
}

// Lookup implements driver.Store.
func (s *Store) Lookup(ctx context.Context, name string) (rec driver.Record, held bool, err error) {
	err = s.applyFault(ctx, Lookup, func() error {
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
func (s *Store) Break(ctx context.Context, req driver.BreakRequest) (rec driver.Record, held bool, err error) {
	err = s.applyFault(ctx, Break, func() error {
		if rec, held, err = s.Store.Break(ctx, req); held {
			s.ask(req.Name)
		}
		return err
	})
	return rec, held, err
}

// Notify implements driver.Notifier if the wrapped store does. A notice that is late does not come
// after stop.
func (s *Store) Notify(f func(driver.Notice)) (stop func()) {
	store, ok := s.Store.(driver.Notifier)
	if !ok {
		return func() {}
	}
	var mu sync.RWMutex // guards stopped
	stopped := false
	pass := func(n driver.Notice) {
		apply := func() {
			mu.RLock()
			defer mu.RUnlock()
			if !stopped {
				f(n)
			}
		}
		if fault := s.count(Notice); fault != nil {
			_ = fault(context.Background(), Notice, apply)
		} else {
			apply()
		}
	}
	stopStore, stopAsks := store.Notify(pass), s.asks.Notify(pass)
	return func() {
		stopStore()
		stopAsks()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
