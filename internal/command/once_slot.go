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
	f.Func("cron", "the `SCHEDULE` of the command as in a crontab: five fields, behind TZ=ZONE if it goes by another clock; or @daily and the like", s.setSchedule)
	f.Func("slot", "the `SLOT` of this run: START/END, where END may be a duration. START tells runs apart, and none begins after END", s.setSlot)
	durationVar(f, &s.every, "every", 0, "how long after the begin of a run there is no other")
}

var errSchedule = errors.New(`want minute, hour, day, month and day of the week, as in "0 3 * * *", or @daily and the like`)

func (s *slotFlags) setSchedule(text string) (err error) {
	zone, _, found := strings.Cut(text, " ")
	if strings.Contains(zone, "TZ=") && !found {
		return errSchedule // for which the parser panics
	}
	if s.schedule, err = cron.ParseStandard(text); err != nil {
		return fmt.Errorf("%w: %w", errSchedule, err)
	}
	return nil
}

// setSlot reads "2026-11-28T03:00:00Z/24h", or with the time of the end for the duration.
func (s *slotFlags) setSlot(text string) error {
	first, last, _ := strings.Cut(text, "/")
	start, err := time.Parse(time.RFC3339, first)
	end, endErr := time.Parse(time.RFC3339, last)
	if length, lengthErr := parseDuration(last); lengthErr == nil {
		end, endErr = start.Add(length), nil
	}
	if err != nil || endErr != nil {
		return errors.New(`want START/END, as in "2026-11-28T03:00:00Z/24h"`)
	}
	s.slot = once.Slot{Start: start, End: end}
	return nil
}

// check refuses all but one of the flags.
func (s *slotFlags) check(form string) error {
	given := 0
	for _, is := range []bool{s.every != 0, s.schedule != nil, s.slot != once.Slot{}} {
		if is {
			given++
		}
	}
	if given != 1 {
		return usageError(errors.New("want one of --cron, --slot and --every, and --every above 0"), form)
	}
	if s.every == 0 {
		return nil
	}
	return checkDuration("every", s.every, driver.MinTTL)
}

// at returns the slot of a run that begins now, which is zero with --every.
func (s *slotFlags) at(now time.Time) (once.Slot, error) {
	if s.schedule == nil {
		return s.slot, nil
	}
	return cronlock.Slot(s.schedule, now)
}
