package cronlock

import (
	"time"

	"github.com/robfig/cron/v3"
)

// A wallSchedule is a schedule by the clock on the wall of a time zone. A cron.SpecSchedule in a
// time zone skips what the change to summer time leaves out, and repeats what the change back
// brings twice.
type wallSchedule struct {
	onWall *cron.SpecSchedule // in UTC: what the clock on the wall shows, as if it never changed
	zone   *time.Location
}

func newWallSchedule(spec *cron.SpecSchedule, now time.Time) *wallSchedule {
	onWall, zone := *spec, spec.Location
	if zone == time.Local {
		zone = now.Location() // as cron does
	}
	onWall.Location = time.UTC
	return &wallSchedule{&onWall, zone}
}

// Next implements [cron.Schedule].
func (s *wallSchedule) Next(t time.Time) time.Time {
	for wall := showOnWall(t.In(s.zone)); ; {
		wall = s.onWall.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if at := firstMoment(wall, s.zone); at.After(t) {
			return at
		}
	}
}

// showOnWall returns what the clock on the wall shows, in UTC.
func showOnWall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// firstMoment returns the first moment at which the clock on the wall shows a time, or the moment
// at which it skips it.
func firstMoment(wall time.Time, zone *time.Location) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	start, end := at.ZoneBounds()
	switch shown := showOnWall(at); {
	case shown.After(wall): // skipped, and at is after the change
		return start
	case shown.Before(wall): // skipped, and at is before the change
		return end
	case start.IsZero():
		return at
	}
	_, before := start.Add(-1).Zone()
	_, after := at.Zone()
	first := at.Add(-time.Duration(before-after) * time.Second)
	if before > after && first.Before(start) {
		return first
	}
	return at
}
