package pgstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// One in sweepEvery acquisitions of a name that is not in the table yet deletes
// rows that have been free for long, so that the table does not grow without
// end. It is left to chance, since many a process takes one lock only.
const (
	sweepEvery = 500
	sweepBound = 30 * time.Second
)

// grown notes that the table has a row more.
func (s *Store) grown() {
	if rand.IntN(sweepEvery) == 0 {
		s.spawn(s.sweep)
	}
}

// sweep deletes old rows. It ends with the store, and its failure with the next
// one's success.
func (s *Store) sweep() {
	ctx, cancel := context.WithTimeout(s.ctx, sweepBound)
	defer cancel()
	_ = s.exec(ctx, s.text.sweep)
}
