package quorumstore

import "github.com/holdfast-go/holdfast/driver"

// combineGuarantees returns the guarantees of a quorum, given those of its nodes.
func combineGuarantees(nodes []driver.Guarantees, need int) driver.Guarantees {
	all := func(claims func(g driver.Guarantees) bool) bool { return countNodes(nodes, claims) == len(nodes) }
	most := func(claims func(g driver.Guarantees) bool) bool { return countNodes(nodes, claims) >= need }
	g := driver.Guarantees{
		Store:       "quorum",
		Scope:       combinedScope(nodes, need),
		Fencing:     all(func(g driver.Guarantees) bool { return g.Fencing }),
		HolderCrash: driver.RecoveryTTL,
		Restart:     combinedFate(nodes, func(g driver.Guarantees) driver.Fate { return g.Restart }),
		Failover:    combinedFate(nodes, func(g driver.Guarantees) driver.Fate { return g.Failover }),
		Lookup:      all(func(g driver.Guarantees) bool { return g.Lookup }),
		List:        all(func(g driver.Guarantees) bool { return g.List }),
		Break:       all(func(g driver.Guarantees) bool { return g.Break }),
		Metadata:    all(func(g driver.Guarantees) bool { return g.Metadata }),
		Keep:        all(func(g driver.Guarantees) bool { return g.Keep }),
		Detached:    all(func(g driver.Guarantees) bool { return g.Detached }),
	}
	for _, node := range nodes {
		g.Grain = max(g.Grain, node.Grain)
	}
	// A successor needs a majority that is free.
	if most(func(g driver.Guarantees) bool { return g.HolderCrash == driver.RecoveryAtOnce }) {
		g.HolderCrash = driver.RecoveryAtOnce
	}
	return g
}

func countNodes(nodes []driver.Guarantees, claims func(driver.Guarantees) bool) int {
	n := 0
	for _, g := range nodes {
		if claims(g) {
			n++
		}
	}
	return n
}

// combinedScope returns the scope of the exclusion of a quorum. Two clients further apart than the
// scope of a node do not share that node: each has one of its own, which votes for that client.
// They exclude each other if any two majorities still meet in a node that they share.
func combinedScope(nodes []driver.Guarantees, need int) driver.Scope {
	for scope := driver.ScopeNetwork; scope > driver.ScopeProcess; scope-- {
		shared := countNodes(nodes, func(g driver.Guarantees) bool { return g.Scope >= scope })
		own := len(nodes) - shared
		if 2*(need-own) > shared {
			return scope
		}
	}
	return driver.ScopeProcess
}

// combinedFate returns what an event on one node does to holds. A hold need not be on more than a
// majority of the nodes, so one node that forgets it is enough to admit another owner.
func combinedFate(nodes []driver.Guarantees, of func(driver.Guarantees) driver.Fate) driver.Fate {
	first := of(nodes[0])
	for _, g := range nodes {
		if of(g) != first {
			return driver.FateForgotten
		}
	}
	return first
}
