// Package lockview is how people see the locks of a store: records as text and as JSON, and
// listings one after another. The command and the page of package lockui show the same.
package lockview

import (
	"cmp"
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

// A Lock is the holds and keeps of one name, one at least. In front is the oldest hold, or the
// oldest keep if nobody holds the name. The others are in the order of their making.
type Lock []holdfast.Record

// NewLock returns the records of one name as a Lock. What is kept would hide the live holders
// behind it, so that a hold is in front. Only the first record shows how many wait.
func NewLock(records []holdfast.Record) Lock {
	l := slices.Clone(records)
	if i := slices.IndexFunc(l, func(rec holdfast.Record) bool { return !rec.Kept }); i > 0 {
		first := l[i]
		copy(l[1:i+1], l[:i])
		l[0] = first
	}
	for i := range l[1:] {
		l[1+i].Waiting = 0
	}
	return l
}

// Name returns the name of a lock.
func (l Lock) Name() string { return l[0].Name }

// View returns a lock as JSON.
func (l Lock) View() View {
	v := NewView(l[0])
	for _, other := range l[1:] {
		v.Others = append(v.Others, NewView(other))
	}
	return v
}

// NewView returns the View of one hold. The time left is by the clock of the store, and its end by
// the clock of this host.
func NewView(rec holdfast.Record) View {
	v := View{
		Name:        rec.Name,
		State:       State(rec),
		Holder:      rec.Holder,
		Token:       rec.Token,
		Since:       jsonTime(rec.Since),
		RemainingMS: rec.Remaining.Milliseconds(),
		Waiting:     rec.Waiting,
		Metadata:    rec.Metadata,
	}
	if rec.Remaining > 0 {
		v.Until = time.Now().UTC().Add(rec.Remaining).Round(time.Millisecond)
	}
	if v.Shared = rec.Limit == driver.Shared; !v.Shared && rec.Limit > 1 {
		v.Limit = rec.Limit
	}
	return v
}

// jsonTime returns a moment in UTC, or the nearest to it that RFC 3339 can represent. What another
// user has written may be thousands of years ahead.
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

// Age returns how long ago a hold began. ok is false if that is not known. The beginning is by the
// clock of the store, and now by the clock of this host.
func Age(rec holdfast.Record) (d time.Duration, ok bool) {
	return max(time.Since(rec.Since), 0), !rec.Since.IsZero()
}

// TimeLeft returns how long the store keeps a hold. A key of a foreign client may have no expiry,
// and the session of an advisory lock has none.
func TimeLeft(rec holdfast.Record) string {
	if rec.Remaining <= 0 {
		return "no expiry"
	}
	return ShortDuration(rec.Remaining)
}

// Usage returns how much of a lock is held: "2 of 10" slots, or "3 shared" holds, and "" for an
// exclusive hold. The least limit of the holds counts.
func (l Lock) Usage() string {
	slots := slices.MinFunc(l, func(a, b holdfast.Record) int { return cmp.Compare(a.Limit, b.Limit) }).Limit
	switch {
	case slots == driver.Shared:
		return fmt.Sprintf("%d shared", len(l))
	case slots > 1:
		return fmt.Sprintf("%d of %d", len(l), slots)
	}
	return ""
}

// SameHold reports whether two records of a name show the same hold. Without tokens, only the
// holder and the time distinguish holds.
func SameHold(a, b holdfast.Record) bool {
	return a.Kept == b.Kept && a.Token == b.Token &&
		(a.Token > 0 || a.Holder == b.Holder && a.Since.Equal(b.Since))
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
