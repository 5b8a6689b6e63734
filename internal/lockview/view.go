// Package lockview is how people see the locks of a store: records as text and as JSON, and listings
// one after another. The command and the page of package lockui show the same.
package lockview

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// States of a lock that is listed.
const (
	StateHeld = "held"
	StateKept = "kept" // released, but not free before its --min-hold is over
)

// A View is a lock as JSON. It leaves out what the store does not know.
type View struct {
	Name        string            `json:"name"`
	State       string            `json:"state,omitempty"`
	Holder      string            `json:"holder,omitempty"`
	Token       int64             `json:"token,omitempty"`
	Since       time.Time         `json:"since,omitzero"`
	Until       time.Time         `json:"until,omitzero"`
	RemainingMS int64             `json:"remaining_ms,omitempty"`
	Shared      bool              `json:"shared,omitempty"`
	Limit       int               `json:"limit,omitempty"`
	Others      []View            `json:"others,omitempty"` // the other holds, if there are several
	Waiting     int               `json:"waiting,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// NewView returns the View of a record.
func NewView(rec holdfast.Record) View {
	v := View{
		Name:        rec.Name,
		State:       State(rec),
		Holder:      rec.Holder,
		Token:       rec.Token,
		RemainingMS: max(rec.Remaining.Milliseconds(), 0),
		Shared:      rec.Limit == driver.Shared,
		Limit:       max(rec.Limit, 0),
		Waiting:     rec.Waiting,
		Metadata:    rec.Metadata,
	}
	v.Since, v.Until = jsonTime(rec.Since), jsonTime(rec.Until)
	for _, other := range rec.Others {
		v.Others = append(v.Others, NewView(other))
	}
	return v
}

// jsonTime returns a moment in UTC, or the nearest to it that RFC 3339 can represent. Another
// client may have set an expiry thousands of years ahead.
func jsonTime(t time.Time) time.Time {
	first, last := time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	switch {
	case t.IsZero():
		return time.Time{}
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t.UTC()
}

// State returns whether a lock is held or only kept.
func State(rec holdfast.Record) string {
	if rec.Kept {
		return StateKept
	}
	return StateHeld
}

// Age returns how long ago a hold began, by the clock of the store if that is known. ok is
// false if the beginning is not known.
func Age(rec holdfast.Record) (d time.Duration, ok bool) {
	if rec.Since.IsZero() {
		return 0, false
	}
	now := time.Now()
	if !rec.Until.IsZero() && rec.Remaining > 0 {
		now = rec.Until.Add(-rec.Remaining)
	}
	return max(now.Sub(rec.Since), 0), true
}

// HasExpiry reports whether a hold ends by itself. A key of a foreign client may have no expiry, and
// the session of an advisory lock has none. In its last millisecond a hold has an end and no time
// left.
func HasExpiry(rec holdfast.Record) bool { return rec.Remaining > 0 || !rec.Until.IsZero() }

// TimeLeft returns how long the store keeps a hold.
func TimeLeft(rec holdfast.Record) string {
	if !HasExpiry(rec) {
		return "no expiry"
	}
	return ShortDuration(max(rec.Remaining, 0))
}

// Usage returns how much of a lock is held: "2 of 10" slots, or "3 shared" holds, and "" for an
// exclusive hold.
func Usage(rec holdfast.Record) string {
	used, limit := 0, 0
	for _, hold := range EachHold(rec) {
		if hold.Limit > 0 {
			used++
			limit = max(limit, hold.Limit)
		}
	}
	switch {
	case limit > 0:
		return fmt.Sprintf("%d of %d", used, limit)
	case rec.Limit == driver.Shared:
		return fmt.Sprintf("%d shared", 1+len(rec.Others))
	}
	return ""
}

// LiveFirst returns a record with the oldest hold that is not kept in front of the others. What is
// kept would hide the live holders behind it.
func LiveFirst(rec holdfast.Record) holdfast.Record {
	holds := EachHold(rec)
	i := slices.IndexFunc(holds, func(hold holdfast.Record) bool { return !hold.Kept })
	if i <= 0 {
		return rec
	}
	first := holds[i]
	first.Waiting = rec.Waiting
	first.Others = slices.Delete(holds, i, i+1)
	first.Others[0].Waiting, first.Others[0].Others = 0, nil
	return first
}

// SameHold reports whether two records of a name show the same hold. Without tokens, only the
// holder and the time distinguish holds.
func SameHold(a, b holdfast.Record) bool {
	return a.Kept == b.Kept && a.Token == b.Token &&
		(a.Token > 0 || a.Holder == b.Holder && a.Since.Equal(b.Since))
}

// EachHold returns the holds of a lock.
func EachHold(rec holdfast.Record) []holdfast.Record {
	return append([]holdfast.Record{rec}, rec.Others...)
}

// Readable returns a text of another user with everything escaped that a terminal might take
// for a command.
func Readable(text string) string {
	if !strings.ContainsFunc(text, isUnprintable) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if piece := text[:size]; isUnprintable(r) {
			quoted := strconv.QuoteToASCII(piece)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(piece)
		}
		text = text[size:]
	}
	return b.String()
}

func isUnprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// FormatMetadata formats metadata on one line.
func FormatMetadata(metadata map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[key]
		if value == "" || strings.ContainsAny(value, ` "`) {
			value = strconv.Quote(value)
		}
		words = append(words, Readable(key)+"="+Readable(value))
	}
	return strings.Join(words, " ")
}

// ShortDuration formats a duration by its two greatest units, rounded down.
func ShortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}
