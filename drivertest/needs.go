package drivertest

import (
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A needs is a set of things that a case builds on: claims of the store and
// functions of the harness.
type needs uint32

const (
	fencing needs = 1 << iota
	push
	supervised
	lookup
	list
	breaking
	metadata
	keep
	detached
	processes // more than one process shares the locks

	restart
	crash
	fault
	sever
	silence
	skew
	bounded // calls return at their deadlines
	prompt  // an Acquire returns when it is cancelled
	starting
)

// missing says how each thing comes to be missing, in the order of the bits.
var missing = []string{
	"Guarantees().Fencing is false",
	"Guarantees().Push is false",
	"Guarantees().Supervised is false",
	"Guarantees().Lookup is false",
	"Guarantees().List is false",
	"Guarantees().Break is false",
	"Guarantees().Metadata is false",
	"Guarantees().Keep is false",
	"Guarantees().Detached is false",
	"Guarantees().Scope is a single process",
	"Backing.Restart is nil",
	"Backing.Crash is nil",
	"Backing.Fault is nil",
	"Backing.Sever is nil",
	"Backing.Silence is nil",
	"Backing.OpenSkewed is nil",
	"Guarantees().Blocking is for long",
	"Guarantees().Blocking does not end with the context",
	"the store does not implement driver.Starter",
}

func (n needs) has(other needs) bool { return n&other == other }

// why says what is missing.
func (n needs) why() string {
	var reasons []string
	for i, reason := range missing {
		if n&(1<<i) != 0 {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "; ")
}

// offered is the set of things that a store claims and a backing offers.
func offered(s driver.Store, b Backing) needs {
	var have needs
	g := s.Guarantees()
	_, starts := s.(driver.Starter)
	for need, present := range map[needs]bool{
		fencing:    g.Fencing,
		push:       g.Push,
		supervised: g.Supervised,
		lookup:     g.Lookup,
		list:       g.List,
		breaking:   g.Break,
		metadata:   g.Metadata,
		keep:       g.Keep,
		detached:   g.Detached,
		processes:  g.Scope != driver.ScopeProcess,
		restart:    b.Restart != nil,
		crash:      b.Crash != nil,
		fault:      b.Fault != nil,
		sever:      b.Sever != nil,
		silence:    b.Silence != nil,
		skew:       b.OpenSkewed != nil,
		bounded:    g.Blocking != driver.BlocksForLong,
		prompt:     g.Blocking >= driver.BlocksToContext,
		starting:   starts,
	} {
		if present {
			have |= need
		}
	}
	return have
}
