package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/election"
)

// NewElector returns an elector for a scheduler that runs jobs while this replica
// leads in the election. The replica must stand by election.Election.Run. The elector
// reads only the clock, and sends no request.
func NewElector(e *election.Election) gocron.Elector { return elector{e} }

type elector struct{ e *election.Election }

// IsLeader implements [gocron.Elector]. If this replica does not lead, the error
// is election.ErrNotLeading.
func (l elector) IsLeader(context.Context) error {
	if _, leads := l.e.Leading(); !leads {
		return election.ErrNotLeading
	}
	return nil
}
