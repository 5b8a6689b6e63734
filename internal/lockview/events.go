package lockview

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Events of a watch.
const (
	EventHeld  = "held"
	EventTaken = "taken"
	EventKept  = "kept"
	EventFreed = "freed"
)

// An Event is a change from one snapshot to the next.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	View
}

// EventsBetween returns the events between two snapshots, sorted by name.
func EventsBetween(before, after map[string]holdfast.Record, at time.Time) []Event {
	names := slices.Collect(maps.Keys(after))
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var events []Event
	for _, name := range names {
		old, was := before[name]
		rec, is := after[name]
		if Usage(old) != "" || Usage(rec) != "" {
			events = append(events, holdEvents(old, was, rec, is, at)...)
			continue
		}
		what := eventKind(old, was, rec, is)
		if what == "" {
			continue
		}
		e := Event{at.UTC(), what, NewView(rec)}
		if !is {
			e.View = NewView(old)
			e.State, e.Until, e.RemainingMS = "", time.Time{}, 0
		}
		events = append(events, e)
	}
	return events
}

// holdEvents returns the events of a lock that has or had several holds: one for each hold that has
// ended, and one for each that is new.
func holdEvents(old holdfast.Record, was bool, rec holdfast.Record, is bool, at time.Time) (events []Event) {
	var before, after []holdfast.Record
	if was {
		before = EachHold(old)
	}
	if is {
		after = EachHold(rec)
	}
	add := func(what string, hold holdfast.Record) {
		hold.Others = nil
		events = append(events, Event{at.UTC(), what, NewView(hold)})
	}
	for _, hold := range before {
		if !slices.ContainsFunc(after, func(other holdfast.Record) bool { return other.Token == hold.Token }) {
			add(EventFreed, hold)
			e := &events[len(events)-1].View
			e.State, e.Until, e.RemainingMS = "", time.Time{}, 0
		}
	}
	for _, hold := range after {
		switch {
		case slices.ContainsFunc(before, func(other holdfast.Record) bool { return SameHold(hold, other) }):
		case hold.Kept:
			add(EventKept, hold)
		default:
			add(EventHeld, hold)
		}
	}
	return events
}

// eventKind returns which event a change of a name is, an empty string if the hold is the same,
// renewed or not.
func eventKind(old holdfast.Record, was bool, rec holdfast.Record, is bool) string {
	switch {
	case !is:
		return EventFreed
	case was && SameHold(old, rec):
		return ""
	case rec.Kept:
		return EventKept
	case was && !old.Kept:
		return EventTaken
	}
	return EventHeld
}

// SameHold reports whether two records of a name show the same hold. Without tokens, only the
// holder and the time distinguish holds.
func SameHold(a, b holdfast.Record) bool {
	return a.Kept == b.Kept && a.Token == b.Token &&
		(a.Token > 0 || a.Holder == b.Holder && a.Since.Equal(b.Since))
}
