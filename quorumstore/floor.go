package quorumstore

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// floorSlack is how far above the client's clock the floor of a token is, in µs: nodes with
	// clocks that are at most that far ahead all grant the floor.
	floorSlack = int64(time.Second / time.Microsecond)

	// maxClockLead bounds the recorded lead of clocks that are further ahead, so that clients that
	// learn from each other cannot drive tokens away from the time.
	maxClockLead = int64(time.Minute / time.Microsecond)
)

// floorFor returns the token to propose: above all that the nodes would choose by themselves, so
// that they agree on it in one round trip.
func (s *engine) floorFor(least int64) int64 {
	if !s.guarantees.Fencing || len(s.nodes) == 1 {
		return least
	}
	return min(max(least, time.Now().UnixMicro()+floorSlack+s.clockLead.Load()), driver.MaxToken)
}

// raisedFloor returns the floor after a round in which the nodes did not agree. greatest is the
// greatest token of that round, and took is how long it lasted.
func (s *engine) raisedFloor(least, greatest int64, took time.Duration) int64 {
	lead := min(greatest-time.Now().UnixMicro(), maxClockLead)
	for old := s.clockLead.Load(); lead > old; old = s.clockLead.Load() {
		if s.clockLead.CompareAndSwap(old, lead) {
			break
		}
	}
	// If the greatest is by a clock that is further ahead than maxClockLead, that clock will have
	// advanced by the time of the next round.
	return s.floorFor(max(least, greatest+1+2*took.Microseconds()))
}
