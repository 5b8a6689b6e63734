//go:build unix

// Package bench measures what locks cost, beside other libraries and beside the plain commands,
// which are the limit of what any library can do. All contenders of a scenario use the same
// servers, in turns, and what counts is the ratio within a round.
package bench

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A Locker is a library that locks, open in one process. Its methods may be called by several
// goroutines at once.
type Locker interface {
	// Acquire blocks until it holds the lock, or until ctx ends.
	Acquire(ctx context.Context, name string) (Held, error)

	Close() error
}

// Held is a lock that was acquired.
type Held interface {
	Release(ctx context.Context) error
}

// A Contender is one way to lock, with its settings.
type Contender struct {
	Name  string
	Waits bool // whether Acquire waits for a name that is held
	Open  func(o Options) (Locker, error)
}

// Options configure a contender.
type Options struct {
	Servers []string // host:port of each, or URLs
	TTL     time.Duration
}

// Memory lists the store that needs no server.
func Memory() []Contender {
	return []Contender{{
		Name: "Holdfast, memory", Waits: true,
		Open: func(o Options) (Locker, error) { return openHoldfast(memstore.New(), o.TTL), nil },
	}}
}

// poolSize is the number of connections of a contender that uses one for each call in flight. More
// connections made none of them faster on the machines tried.
const poolSize = 64

var errHeld = errors.New("the name is held")

// A funcLocker is a Locker that consists of functions.
type funcLocker struct {
	acquire func(ctx context.Context, name string) (Held, error)
	close   func() error
}

func (l funcLocker) Acquire(ctx context.Context, name string) (Held, error) {
	return l.acquire(ctx, name)
}

func (l funcLocker) Close() error { return l.close() }

// A releaseFunc is a Held that is released by a call of the function.
type releaseFunc func(ctx context.Context) error

func (release releaseFunc) Release(ctx context.Context) error { return release(ctx) }

// openHoldfast returns a Locker on a store. Its Close calls the functions of after, too.
func openHoldfast(store driver.Store, ttl time.Duration, after ...func() error) Locker {
	client := holdfast.New(store, nil)
	options := &holdfast.Options{TTL: ttl}
	return funcLocker{func(ctx context.Context, name string) (Held, error) {
		lock, err := client.Acquire(ctx, name, options)
		if err != nil {
			return nil, err
		}
		return releaseFunc(func(context.Context) error { return lock.Release() }), nil
	}, closeAll(append([]func() error{client.Close, store.Close}, after...)...)}
}

// closeAll returns a function that calls all of them, in order.
func closeAll(all ...func() error) func() error {
	return func() error {
		var errs []error
		for _, f := range all {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
}
