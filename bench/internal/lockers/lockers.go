//go:build unix

// Package lockers gives the libraries that are compared one interface, [measure.Locker].
package lockers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// A Role is the part of a contender in the comparison.
type Role string

// The roles.
const (
	Ours  Role = "ours"
	Rival Role = "rival"
	Raw   Role = "raw" // plain commands, with nothing around them: a limit
)

// A Contender is one way to lock, with its settings.
type Contender struct {
	Name     string // in tables and charts
	Settings string // for the page
	Role     Role
	Renews   bool // whether a held lock is renewed until it is released
	Patient  bool // whether Acquire ignores the end of its context
	Open     func(o Options) (measure.Locker, error)

	// Keys returns the Redis keys that must be free for a name to be free.
	Keys func(name string) []string

	// Size is what a scenario of growth varies: see Sized. Base is the name for Find, "" means Name.
	Size int
	Base string

	// Against is the name of the Holdfast that this contender is compared with; "" means
	// the first one of a scenario.
	Against string
}

// Sized returns a contender for each size, with names such as "Holdfast, 100 waiting". The sizes of
// the first contender are compared with its base size. Those of any other are compared with the
// first contender in the same size.
func Sized(all []Contender, what string, base int, sizes ...int) (sized []Contender) {
	name := func(c Contender, size int) string { return fmt.Sprintf("%s, %s %s", c.Name, groupDigits(size), what) }
	for i, c := range all {
		for _, size := range sizes {
			own := c
			own.Base, own.Name, own.Size, own.Against = c.Name, name(c, size), size, name(all[0], size)
			if i == 0 {
				own.Against = name(c, base)
			}
			sized = append(sized, own)
		}
	}
	return sized
}

// groupDigits formats a number with commas between thousands.
func groupDigits(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", groupDigits(n/1000), n%1000)
}

// singleKey returns the Keys of a library with one key for each name.
func singleKey(prefix string) func(name string) []string {
	return func(name string) []string { return []string{prefix + name} }
}

// Options configure a contender.
type Options struct {
	Servers []string // host:port of each, or URLs
	TTL     time.Duration
}

// poolSize is the number of connections of a contender that uses one for each call in
// flight. More connections made none of them faster on the machines tried.
const poolSize = 64

var (
	errHeld = errors.New("the name is held")
	errLost = errors.New("the lock was lost") // Release found nothing to release.
)

// All lists every contender.
func All() []Contender {
	return slices.Concat(Redis(), RedisDefaults(), RedisPolling(), RedisRaw(), Quorum(),
		PostgresLease(), PostgresPolling(), PostgresAdvisory(), PostgresAdvisoryRaw(), Etcd(), File())
}

// Find returns the contender with a name.
func Find(name string) (Contender, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, false
	}
	return all[i], true
}

// A funcLocker is a Locker that consists of functions.
type funcLocker struct {
	acquire func(ctx context.Context, name string) (measure.Held, error)
	close   func() error
}

func (l funcLocker) Acquire(ctx context.Context, name string) (measure.Held, error) {
	return l.acquire(ctx, name)
}

func (l funcLocker) Close() error { return l.close() }

// A releaseFunc is a Held that is released by a call of the function.
type releaseFunc func(ctx context.Context) error

func (release releaseFunc) Release(ctx context.Context) error { return release(ctx) }

// openHoldfast returns a Locker on a store. Its Close calls the functions of after, too.
func openHoldfast(store driver.Store, ttl time.Duration, after ...func() error) measure.Locker {
	config := &holdfast.Config{Options: holdfast.Options{TTL: ttl}}
	locker := measure.NewLocker(holdfast.New(store, config))
	return funcLocker{locker.Acquire, closeAll(append([]func() error{locker.Close, store.Close}, after...)...)}
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
