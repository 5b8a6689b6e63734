package main

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Events of a watch.
const (
	eventHeld  = "held"
	eventTaken = "taken"
	eventKept  = "kept"
	eventFreed = "freed"
)

// An event is a change from one snapshot to the next.
type event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	lockView
}

// eventsBetween returns the events between two snapshots, sorted by name.
func eventsBetween(before, after map[string]holdfast.Record, at time.Time) []event {
	names := slices.Collect(maps.Keys(after))
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var events []event
	for _, name := range names {
		old, was := before[name]
		rec, is := after[name]
		if usage(old) != "" || usage(rec) != "" {
			events = append(events, holdEvents(old, was, rec, is, at)...)
			continue
		}
		what := eventKind(old, was, rec, is)
		if what == "" {
			continue
		}
		e := event{at.UTC(), what, newLockView(rec)}
		if !is {
			e.lockView = newLockView(old)
			e.State, e.Until, e.RemainingMS = "", time.Time{}, 0
		}
		events = append(events, e)
	}
	return events
}

// holdEvents returns the events of a lock that has or had several holds: one for each hold that has
// ended, and one for each that is new.
func holdEvents(old holdfast.Record, was bool, rec holdfast.Record, is bool, at time.Time) (events []event) {
	var before, after []holdfast.Record
	if was {
		before = eachHold(old)
	}
	if is {
		after = eachHold(rec)
	}
	add := func(what string, hold holdfast.Record) {
		hold.Others = nil
		events = append(events, event{at.UTC(), what, newLockView(hold)})
	}
	for _, hold := range before {
		if !slices.ContainsFunc(after, func(other holdfast.Record) bool { return other.Token == hold.Token }) {
			add(eventFreed, hold)
			e := &events[len(events)-1].lockView
			e.State, e.Until, e.RemainingMS = "", time.Time{}, 0
		}
	}
	for _, hold := range after {
		switch {
		case slices.ContainsFunc(before, func(other holdfast.Record) bool { return sameHold(hold, other) }):
		case hold.Kept:
			add(eventKept, hold)
		default:
			add(eventHeld, hold)
		}
	}
	return events
}

// eventKind returns which event a change of a name is, an empty string if the hold is the same,
// renewed or not.
func eventKind(old holdfast.Record, was bool, rec holdfast.Record, is bool) string {
	switch {
	case !is:
		return eventFreed
	case was && sameHold(old, rec):
		return ""
	case rec.Kept:
		return eventKept
	case was && !old.Kept:
		return eventTaken
	}
	return eventHeld
}

// sameHold reports whether two records of a name show the same hold. Without tokens, only the
// holder and the time distinguish holds.
func sameHold(a, b holdfast.Record) bool {
	return a.Kept == b.Kept && a.Token == b.Token &&
		(a.Token > 0 || a.Holder == b.Holder && a.Since.Equal(b.Since))
}

// eventLines is the display that writes a line for each change.
type eventLines struct {
	printNotice func(string, ...any)
	known       map[string]holdfast.Record
	lastErrors  string
}

func (l *eventLines) showSnapshot(p *snapshot) error {
	l.printErrors(p.errs)
	now := p.locksByName()
	var lines []byte
	for _, e := range eventsBetween(l.known, now, p.at) {
		line, err := jsonLine(e)
		if err != nil {
			return exitErrorFor(err)
		}
		lines = append(lines, line...)
	}
	l.known = now
	if len(lines) == 0 {
		return nil
	}
	return writeOutput(lines)
}

// printErrors reports the errors unless they are those of the last snapshot.
func (l *eventLines) printErrors(errs []error) {
	current := ""
	for _, err := range errs {
		current += err.Error() + "\n"
	}
	if current == l.lastErrors {
		return
	}
	l.lastErrors = current
	for _, err := range errs {
		l.printNotice("%w", err)
	}
}

func (l *eventLines) onResume() {}

func (l *eventLines) finish() {}
