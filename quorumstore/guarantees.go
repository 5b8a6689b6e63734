package quorumstore

import "github.com/holdfast-go/holdfast/driver"

// combine says what a quorum promises, given what its nodes do.
func combine(nodes []driver.Guarantees, need int) driver.Guarantees {
	all := func(claims func(g driver.Guarantees) bool) bool { return count(nodes, claims) == len(nodes) }
	most := func(claims func(g driver.Guarantees) bool) bool { return count(nodes, claims) >= need }
	g := driver.Guarantees{
		Store:       "quorum",
		Scope:       reach(nodes, need),
		Blocking:    driver.BlocksToContext,
		Fencing:     all(func(g driver.Guarantees) bool { return g.Fencing }),
		HolderCrash: driver.RecoveryTTL,
		Restart:     fate(nodes, func(g driver.Guarantees) driver.Fate { return g.Restart }),
		Failover:    fate(nodes, func(g driver.Guarantees) driver.Fate { return g.Failover }),
		Fair:        len(nodes) == 1 && nodes[0].Fair,
		Push:        most(func(g driver.Guarantees) bool { return g.Push }),
		Lookup:      all(func(g driver.Guarantees) bool { return g.Lookup }),
		List:        all(func(g driver.Guarantees) bool { return g.List }),
		Break:       all(func(g driver.Guarantees) bool { return g.Break }),
		Metadata:    all(func(g driver.Guarantees) bool { return g.Metadata }),
		Keep:        all(func(g driver.Guarantees) bool { return g.Keep }),
		Detached:    all(func(g driver.Guarantees) bool { return g.Detached }),
	}
	// A successor needs a majority that is free.
	if most(func(g driver.Guarantees) bool { return g.HolderCrash == driver.RecoveryAtOnce }) {
		g.HolderCrash = driver.RecoveryAtOnce
	}
	return g
}

func count(nodes []driver.Guarantees, claims func(driver.Guarantees) bool) int {
	n := 0
	for _, g := range nodes {
		if claims(g) {
			n++
		}
	}
	return n
}

// reach is how far the exclusion of a quorum reaches. Two clients further apart
// than a node reaches do not share that node: each has one of its own, which
// votes for him. They exclude each other if any two majorities still meet in a
// node that they share.
func reach(nodes []driver.Guarantees, need int) driver.Scope {
	for scope := driver.ScopeNetwork; scope > driver.ScopeProcess; scope-- {
		shared := count(nodes, func(g driver.Guarantees) bool { return g.Scope >= scope })
		own := len(nodes) - shared
		if 2*(need-own) > shared {
			return scope
		}
	}
	return driver.ScopeProcess
}

// fate is what an event that strikes one node does to holds. A hold need not be
// on more than a majority of the nodes, so that one that forgets it is enough
// to let somebody else in.
func fate(nodes []driver.Guarantees, of func(driver.Guarantees) driver.Fate) driver.Fate {
	first := of(nodes[0])
	for _, g := range nodes {
		if of(g) != first {
			return driver.FateForgotten
		}
	}
	return first
}
