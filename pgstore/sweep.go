package pgstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// One in sweepEvery acquisitions of a name that is not in the table yet deletes rows that have been
// free for long, so that the growth of the table is bounded. The choice is random, since many
// processes acquire one lock only.
const (
	sweepEvery   = 500
	sweepTimeout = 30 * time.Second
)

// maybeSweep is called after the table has grown by a row.
func (s *engine) maybeSweep() {
	if rand.IntN(sweepEvery) == 0 {
		s.runInBackground(s.sweepRows)
	}
}

// sweepRows deletes old rows. It ends with the store. A failure is ignored, since the next sweep
// makes up for it.
func (s *engine) sweepRows() {
	ctx, cancel := context.WithTimeout(s.ctx, sweepTimeout)
	defer cancel()
	_ = s.execQuery(ctx, s.queries.sweep)
}
