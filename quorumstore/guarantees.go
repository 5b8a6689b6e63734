package quorumstore

import "github.com/holdfast-go/holdfast/internal/olddriver"

// combineGuarantees returns the guarantees of a quorum, given those of its nodes.
func combineGuarantees(nodes []olddriver.Guarantees, need int) olddriver.Guarantees {
	all := func(claims func(g olddriver.Guarantees) bool) bool { return countNodes(nodes, claims) == len(nodes) }
	most := func(claims func(g olddriver.Guarantees) bool) bool { return countNodes(nodes, claims) >= need }
	g := olddriver.Guarantees{
		Store:       "quorum",
		Scope:       combinedScope(nodes, need),
		Fencing:     all(func(g olddriver.Guarantees) bool { return g.Fencing }),
		HolderCrash: olddriver.RecoveryTTL,
		Restart:     combinedFate(nodes, func(g olddriver.Guarantees) olddriver.Fate { return g.Restart }),
		Failover:    combinedFate(nodes, func(g olddriver.Guarantees) olddriver.Fate { return g.Failover }),
		Lookup:      all(func(g olddriver.Guarantees) bool { return g.Lookup }),
		List:        all(func(g olddriver.Guarantees) bool { return g.List }),
		Break:       all(func(g olddriver.Guarantees) bool { return g.Break }),
		Metadata:    all(func(g olddriver.Guarantees) bool { return g.Metadata }),
		Keep:        all(func(g olddriver.Guarantees) bool { return g.Keep }),
		Detached:    all(func(g olddriver.Guarantees) bool { return g.Detached }),
	}
	for _, node := range nodes {
		g.Grain = max(g.Grain, node.Grain)
	}
	// A successor needs a majority that is free.
	if most(func(g olddriver.Guarantees) bool { return g.HolderCrash == olddriver.RecoveryAtOnce }) {
		g.HolderCrash = olddriver.RecoveryAtOnce
	}
	return g
}

func countNodes(nodes []olddriver.Guarantees, claims func(olddriver.Guarantees) bool) int {
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
func combinedScope(nodes []olddriver.Guarantees, need int) olddriver.Scope {
	for scope := olddriver.ScopeNetwork; scope > olddriver.ScopeProcess; scope-- {
		shared := countNodes(nodes, func(g olddriver.Guarantees) bool { return g.Scope >= scope })
		own := len(nodes) - shared
		if 2*(need-own) > shared {
			return scope
		}
	}
	return olddriver.ScopeProcess
}

// combinedFate returns what an event on one node does to holds. A hold need not be on more than a
// majority of the nodes, so one node that forgets it is enough to admit another owner.
func combinedFate(nodes []olddriver.Guarantees, of func(olddriver.Guarantees) olddriver.Fate) olddriver.Fate {
	first := of(nodes[0])
	for _, g := range nodes {
		if of(g) != first {
			return olddriver.FateForgotten
		}
	}
	return first
}
