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

// operations are the grants and ends of one name. A hold can have ended at any
// moment from when it was no longer relied on.
func operations(holds []*hold) []porcupine.Operation {
	byToken := slices.SortedStableFunc(slices.Values(holds), func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
	var all []porcupine.Operation
	for rank, a := range byToken {
		const never = time.Duration(1 << 62)
		freed := never
		if a.freed != 0 {
			freed = a.freed
		}
		all = append(all,
			porcupine.Operation{ClientId: a.proc, Input: step{rank, a.token, false}, Call: int64(a.asked), Return: int64(a.got)},
			porcupine.Operation{ClientId: a.proc, Input: step{rank, a.token, true}, Call: int64(a.relied), Return: int64(max(freed, a.relied))})
	}
	return all
}

// modelTime bounds the search for one name.
const modelTime = 20 * time.Second

// model has porcupine judge the holds of one name.
func (c *court) model(holds []*hold) {
	if !c.fenced {
		return // without tokens the order of grants is not known
	}
	result := porcupine.CheckOperationsTimeout(lockMachine, operations(holds), modelTime)
	switch result {
	case porcupine.Illegal:
		c.find(kindModel, fmt.Sprintf("no order of the %d grants of %s explains what was seen", len(holds), holds[0].name))
	case porcupine.Unknown:
		c.find(kindModel, fmt.Sprintf("whether the %d grants of %s can be explained was not found out in %v", len(holds), holds[0].name, modelTime))
	}
}
