package once

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// A Slot is the time in which a scheduled run can be made: from Start until just before End, by the
// wall clock. Start identifies the run: replicas that mean the same run must pass the same Start,
// to the nanosecond. A slot lasts at most 366 days; in one of more than 361 no run begins after
// that. A call before Start runs, too.
type Slot struct {
	Start time.Time
	End   time.Time
}

// Period returns the slot that contains now, among the slots of that length that follow each other
// without a gap. Periods that divide a day begin at midnight UTC, and weeks on Monday.
func Period(now time.Time, length time.Duration) Slot {
	if length <= 0 {
		return Slot{}
	}
	start := now.UTC().Truncate(length)
	return Slot{Start: start, End: start.Add(length)}
}

// Tick returns the slot of the tick that is nearest to now, among the ticks that follow each other
// at that interval. The slot lasts until halfway to the next tick. It suits calls made by a timer
// at each tick. If the timer fires a little early, because the clock was corrected meanwhile, the
// call belongs to the tick that the timer was set for and not to the one before.
func Tick(now time.Time, interval time.Duration) Slot {
	if interval <= 0 {
		return Slot{}
	}
	start := now.UTC().Add(interval / 2).Truncate(interval)
	return Slot{Start: start, End: start.Add(interval - interval/2)}
}

// maxSlot is the greatest length of a slot: a leap year.
const maxSlot = 366 * 24 * time.Hour

func (s Slot) validate() error {
	if length := s.End.Sub(s.Start); length <= 0 || length > maxSlot {
		return fmt.Errorf("%w: a slot of %v, want more than 0 and at most %v", holdfast.ErrInvalid, length, maxSlot)
	}
	return nil
}

// markName returns the name of the mark of a job's slot.
func (s Slot) markName(job string) string {
	return job + "@" + s.Start.UTC().Format(time.RFC3339Nano)
}
