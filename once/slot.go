package once

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A Slot is the time in which a scheduled run can be made: from Start until just
// before End, by the wall clock. Replicas that mean the same run must name the
// same Start, to the nanosecond; it identifies the run.
type Slot struct {
	Start time.Time
	End   time.Time
}

// Period returns the slot of the moment among those of that length which follow
// each other without a gap. Periods that divide a day begin at midnight UTC,
// and weeks on Monday.
func Period(now time.Time, length time.Duration) Slot {
	if length <= 0 {
		return Slot{}
	}
	start := now.UTC().Truncate(length)
	return Slot{Start: start, End: start.Add(length)}
}

// Tick returns the slot of the tick that is nearest to the moment, among those
// that follow each other at that interval; it lasts until halfway to the next.
// It suits calls made by a timer at each tick: one that fires a little early, by a
// clock that was corrected meanwhile, belongs to the tick that it was set for
// and not to the one before.
func Tick(now time.Time, interval time.Duration) Slot {
	if interval <= 0 {
		return Slot{}
	}
	start := now.UTC().Add(interval / 2).Truncate(interval)
	return Slot{Start: start, End: start.Add(interval - interval/2)}
}

// maxSlot is the greatest length of a slot: a leap year.
const maxSlot = 366 * 24 * time.Hour

func (s Slot) check() error {
	if length := s.End.Sub(s.Start); length <= 0 || length > maxSlot {
		return fmt.Errorf("%w: a slot of %v, want more than 0 and at most %v", holdfast.ErrInvalid, length, maxSlot)
	}
	return nil
}

// mark is the name of the mark of a slot.
func (s Slot) mark(job string) string {
	return job + "@" + s.Start.UTC().Format(time.RFC3339Nano)
}
