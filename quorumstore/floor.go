package quorumstore

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// floorSlack is how far above our clock the floor of a token is, in µs:
	// nodes whose clocks are no further ahead of ours all grant the floor.
	floorSlack = int64(time.Second / time.Microsecond)

	// maxLead bounds what is learnt of clocks that are further ahead, so that
	// clients that learn from each other cannot drive tokens away from the time.
	maxLead = int64(time.Minute / time.Microsecond)
)

// floor is what to propose as a token: above all that the nodes would choose by
// themselves, so that they agree on it in one round trip.
func (s *Store) floor(asked int64) int64 {
	if !s.can.Fencing || len(s.nodes) == 1 {
		return asked
	}
	return min(max(asked, time.Now().UnixMicro()+floorSlack+s.lead.Load()), driver.MaxToken)
}

// raise is the floor after a round in which the nodes did not agree, the
// greatest token was the one given, and which took so long.
func (s *Store) raise(asked, greatest int64, took time.Duration) int64 {
	lead := min(greatest-time.Now().UnixMicro(), maxLead)
	for old := s.lead.Load(); lead > old; old = s.lead.Load() {
		if s.lead.CompareAndSwap(old, lead) {
			break
		}
	}
	// Should the greatest be by a clock that is further ahead than maxLead, it
	// will have gone on by the time of the next round.
	return s.floor(max(asked, greatest+1+2*took.Microseconds()))
}
