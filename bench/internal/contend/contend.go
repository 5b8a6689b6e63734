//go:build unix

// Package contend makes the libraries that are compared look alike: each
// contender acquires a name, waiting for it, and releases it.
package contend

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A Role says what a contender is in the comparison.
type Role string

// The roles.
const (
	Ours  Role = "ours"
	Rival Role = "rival"
	Raw   Role = "raw" // plain commands, with nothing around them: a limit
)

// A Kind is one way to lock, and how it is set up.
type Kind struct {
	Name     string // in tables and charts
	Settings string // what was set, for the page
	Role     Role
	Renews   bool // a held lock is renewed until it is released
	Patient  bool // Acquire does not look at the end of its context
	Open     func(o Options) (Contender, error)

	// Keys returns the Redis keys without which a name is free.
	Keys func(name string) []string
}

// keyOf is the Keys of those that use one key.
func keyOf(prefix string) func(name string) []string {
	return func(name string) []string { return []string{prefix + name} }
}

// Options say where a contender works.
type Options struct {
	Servers []string // host:port of each, or URLs
	TTL     time.Duration
}

// A Contender is a library in use by one process. Its methods may be called
// from many goroutines at once.
type Contender interface {
	// Acquire returns when it has the name, or when ctx has ended.
	Acquire(ctx context.Context, name string) (Held, error)

	Close() error
}

// Held is a lock that was acquired.
type Held interface {
	Release(ctx context.Context) error
}

// An Extender is a Held whose TTL can be started anew.
type Extender interface {
	Held
	Extend(ctx context.Context, ttl time.Duration) error
}

// errLost is the answer of a release that found nothing to release.
var errLost = errors.New("the lock was lost")

// All lists every kind.
func All() []Kind {
	return slices.Concat(Redis(), RedisDefaults(), RedisPolling(), RedisRaw(), Quorum(),
		PostgresLease(), PostgresPolling(), PostgresAdvisory(), PostgresAdvisoryRaw())
}

// Find returns the kind of a name.
func Find(name string) (Kind, bool) {
	all := All()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return all[i], true
}
