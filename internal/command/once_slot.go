package command

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a schedule names the same slots on a host without time zones

	"github.com/robfig/cron/v3"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/once"
	"github.com/holdfast-go/holdfast/once/cronlock"
)

// slotFlags are the flags of "once" that tell which runs are the same.
type slotFlags struct {
	every    time.Duration
	schedule cron.Schedule // nil without --cron
	slot     once.Slot     // zero without --slot
}

func (s *slotFlags) addTo(f *pflag.FlagSet) {
	f.Var(&flagValue[cron.Schedule]{&s.schedule, parseSchedule, func(cron.Schedule) string { return "" }, "string"}, "cron",
		"the `SCHEDULE` of the command as in a crontab:\n"+
			"five fields, behind TZ=ZONE if it goes by\n"+
			"another clock; or @daily and the like")
	f.Var(&flagValue[once.Slot]{&s.slot, parseSlot, func(once.Slot) string { return "" }, "string"}, "slot",
		"the `SLOT` of this run: START/END, where END\n"+
			"may be a duration. START tells runs apart,\n"+
			"and none begins after END")
	durationVar(f, &s.every, "every", 0, "how long after the begin of a run there is\n"+
		"no other")
}

var errSchedule = errors.New(`want minute, hour, day, month and day of the week, as in "0 3 * * *", or @daily and the like`)

func parseSchedule(text string) (cron.Schedule, error) {
	zone, _, found := strings.Cut(text, " ")
	if strings.Contains(zone, "TZ=") && !found {
		return nil, errSchedule // for which the parser panics
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSchedule, err)
	}
	return schedule, nil
}

// parseSlot reads "2026-11-28T03:00:00Z/24h", or with the time of the end for the duration.
func parseSlot(text string) (once.Slot, error) {
	first, last, _ := strings.Cut(text, "/")
	start, err := time.Parse(time.RFC3339, first)
	if err == nil {
		var length time.Duration
		if length, err = parseDuration(last); err == nil {
			return once.Slot{Start: start, End: start.Add(length)}, nil
		}
		var end time.Time
		if end, err = time.Parse(time.RFC3339, last); err == nil {
			return once.Slot{Start: start, End: end}, nil
		}
	}
	return once.Slot{}, errors.New(`want START/END, as in "2026-11-28T03:00:00Z/24h"`)
}

// check refuses all but one of the flags.
func (s *slotFlags) check(form string) error {
	given := 0
	for _, is := range []bool{s.every != 0, s.schedule != nil, s.slot != once.Slot{}} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return usageError(errors.New("want one of --cron, --slot and --every"), form)
	case s.every < 0:
		return usageError(fmt.Errorf("--every %v is below 0", s.every), "--every 10m")
	case s.every > driver.MaxTTL:
		return usageError(fmt.Errorf("--every %v is above %v", s.every, driver.MaxTTL), "--every 365d")
	}
	return nil
}

// at returns the slot of a run that begins now, which is zero with --every.
func (s *slotFlags) at(now time.Time) (once.Slot, error) {
	if s.schedule == nil {
		return s.slot, nil
	}
	return cronlock.Slot(s.schedule, now)
}

// maxSkew bounds how long the record of a run outlasts its slot.
const maxSkew = 24 * time.Hour

// skewOf returns how far the clocks of hosts may be apart: the length of a slot, so that there are
// two records of a job at most.
func skewOf(slot once.Slot) time.Duration {
	return min(max(time.Minute, slot.End.Sub(slot.Start)), maxSkew)
}
