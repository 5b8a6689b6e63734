//go:build unix

package torture

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The lock as an abstract machine: it is free, or held under a token; a grant
// takes it when it is free, under a token greater than all before; and every hold
// ends. Whether a history can be that of such a machine, with each step taking
// effect at one moment within the time that it took, is decided by porcupine.
//
// Since tokens must rise, there is only one order in which grants can have come.
// The machine counts them, which leaves the search no choices to make.

type step struct {
	rank  int // of the grant in the order of the tokens
	token int64
	ends  bool
}

// lockMachine has as its state how many steps were taken: the lock is held if
// that is odd.
var lockMachine = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		taken, s := state.(int), input.(step)
		legal := taken == 2*s.rank && !s.ends || taken == 2*s.rank+1 && s.ends
		return legal, taken + 1
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(step)
		if s.ends {
			return fmt.Sprintf("end of %d", s.token)
		}
		return fmt.Sprintf("grant %d", s.token)
	},
	DescribeState: func(state any) string {
		if taken := state.(int); taken%2 == 1 {
			return fmt.Sprintf("held (grant %d)", taken/2+1)
		}
		return "free"
	},
}

// operations are the grants and ends of one name, in the order of the tokens. A
// hold can have ended at any moment from when it was no longer relied on, or the
// store had an excuse to forget it. None can have happened before the time from; where
// one must have, the history is not possible.
func operations(holds []*hold, from time.Duration) (all []porcupine.Operation, possible bool) {
	possible = true
	for rank, a := range holds {
		freed := never
		if a.freed != 0 {
			freed = max(a.freed, a.relied)
		}
		possible = possible && a.got >= from && freed >= from
		ends := min(a.relied, a.forgot)
		all = append(all,
			porcupine.Operation{ClientId: a.proc, Input: step{rank, a.token, false}, Call: int64(max(a.asked, from)), Return: int64(a.got)},
			porcupine.Operation{ClientId: a.proc, Input: step{rank, a.token, true}, Call: int64(max(ends, from)), Return: int64(freed)})
	}
	return all, possible
}

// The search is bounded in time, and in memory, which grows by the square of the
// number of grants: so they are judged in portions. No grant can come before the
// last one of the portion before was asked for, nor before an end of one of it.
const (
	modelTime = 20 * time.Second
	portion   = 2000
)

// model has porcupine judge the holds of one name.
func (c *court) model(holds []*hold) {
	if !c.fenced {
		return // without tokens the order of grants is not known
	}
	byToken := slices.SortedStableFunc(slices.Values(holds), func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
	var from time.Duration
	for part := range slices.Chunk(byToken, portion) {
		all, possible := operations(part, from)
		result := porcupine.Illegal
		if possible {
			result = porcupine.CheckOperationsTimeout(lockMachine, all, modelTime)
		}
		switch result {
		case porcupine.Illegal:
			c.find(kindModel, fmt.Sprintf("no order of %d grants of %s explains what was seen", len(part), holds[0].name))
			return
		case porcupine.Unknown:
			c.find(kindModel, fmt.Sprintf("whether %d grants of %s can be explained was not found out in %v", len(part), holds[0].name, modelTime))
			return
		}
		for _, a := range part {
			from = max(from, a.asked, min(a.relied, a.forgot))
		}
	}
}
