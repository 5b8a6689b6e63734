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

// An event is a change from one picture to the next.
type event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	view
}

// changes are the events between two pictures, sorted by name.
func changes(before, after map[string]holdfast.Record, at time.Time) []event {
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
		what := change(old, was, rec, is)
		if what == "" {
			continue
		}
		e := event{at.UTC(), what, viewOf(rec)}
		if !is {
			e.view = viewOf(old)
			e.State, e.Until, e.RemainingMS = "", time.Time{}, 0
		}
		events = append(events, e)
	}
	return events
}

// change says in a word what has become of a name, nothing if it is as it was or
// was renewed.
func change(old holdfast.Record, was bool, rec holdfast.Record, is bool) string {
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

// sameHold reports whether two pictures of a name show the same hold. A store
// without tokens has only the holder and the time to tell by.
func sameHold(a, b holdfast.Record) bool {
	return a.Kept == b.Kept && a.Token == b.Token &&
		(a.Token > 0 || a.Holder == b.Holder && a.Since.Equal(b.Since))
}

// eventLines is the display that writes a line for each change.
type eventLines struct {
	say      func(string, ...any)
	known    map[string]holdfast.Record
	troubles string
}

func (l *eventLines) show(p *picture) error {
	l.complain(p.errs)
	now := p.byName()
	var lines []byte
	for _, e := range changes(l.known, now, p.at) {
		line, err := jsonLine(e)
		if err != nil {
			return failure(err)
		}
		lines = append(lines, line...)
	}
	l.known = now
	if len(lines) == 0 {
		return nil
	}
	return output(lines)
}

// complain tells errors that are not those of the last picture.
func (l *eventLines) complain(errs []error) {
	troubles := ""
	for _, err := range errs {
		troubles += err.Error() + "\n"
	}
	if troubles == l.troubles {
		return
	}
	l.troubles = troubles
	for _, err := range errs {
		l.say("%w", err)
	}
}

func (l *eventLines) resume() {}

func (l *eventLines) end() {}
