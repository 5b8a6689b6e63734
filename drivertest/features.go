package drivertest

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// features is a set of claims of the store and functions of the harness that cases
// depend on.
type features uint32

const (
	fencing features = 1 << iota
	fair
	notifying // queues requests for a name that is held, whether it is fair or not
	lookup
	list
	breaking
	metadata
	keep
	detached
	shared
	limited
	processes // more than one process shares the locks

	restart
	crash
	fault
	sever
	silence
	skew
	occupy
	busy
)

// missingReason has, in the order of the bits, the reason why a feature is missing.
var missingReason = []string{
	"Guarantees().Fencing is false",
	"Guarantees().Fair is false",
	"the store does not queue a request with Queue",
	"Guarantees().Lookup is false",
	"Guarantees().List is false",
	"Guarantees().Break is false",
	"Guarantees().Metadata is false",
	"Guarantees().Keep is false",
	"Guarantees().Detached is false",
	"Guarantees().Shared is false",
	"Guarantees().Limited is false",
	"Guarantees().Scope is a single process",
	"Backing.Restart is nil",
	"Backing.Crash is nil",
	"Backing.Fault is nil",
	"Backing.Sever is nil",
	"Backing.Silence is nil",
	"Backing.OpenSkewed is nil",
	"Backing.Occupy is nil",
	"Backing.Busy is nil",
}

func (n features) contains(other features) bool { return n&other == other }

// missingReasons returns the reasons why the features are missing.
func (n features) missingReasons() string {
	var reasons []string
	for i, reason := range missingReason {
		if n&(1<<i) != 0 {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; ")
}

// available returns the features that a store claims and a backing offers. It sends requests to the
// store.
func available(ctx context.Context, s driver.Store, b Backing) features {
	var have features
	g := s.Guarantees()
	for need, present := range map[features]bool{
		fencing:   g.Fencing,
		fair:      g.Fair,
		notifying: g.Fair || answersQueued(ctx, s),
		lookup:    g.Lookup,
		list:      g.List,
		breaking:  g.Break,
		metadata:  g.Metadata,
		keep:      g.Keep,
		detached:  g.Detached,
		shared:    g.Shared,
		limited:   g.Limited,
		processes: g.Scope != driver.ScopeProcess,
		restart:   b.Restart != nil,
		crash:     b.Crash != nil,
		fault:     b.Fault != nil,
		sever:     b.Sever != nil,
		silence:   b.Silence != nil,
		skew:      b.OpenSkewed != nil,
		occupy:    b.Occupy != nil,
		busy:      b.Busy != nil,
	} {
		if present {
			have |= need
		}
	}
	return have
}

// answersQueued reports whether a store queues a request for a name that is held.
func answersQueued(ctx context.Context, s driver.Store) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, owner := range []string{"holder", "waiter"} {
		req := driver.AcquireRequest{Name: "available", Owner: owner, Holder: owner, TTL: long}
		if owner == "waiter" {
			req.Queue = short
		}
		defer s.Release(context.WithoutCancel(ctx), driver.ReleaseRequest{Name: req.Name, Owner: owner})
		if res, err := s.Acquire(ctx, req); err != nil || owner == "waiter" {
			return res.Queued
		}
	}
	return false
}
