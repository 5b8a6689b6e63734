package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// States of a lock that is listed.
const (
	stateHeld = "held"
	stateKept = "kept" // released, but not free before its --min-hold is over
)

// A lockView is a lock as --json shows it. It leaves out what the store does not know.
type lockView struct {
	Name        string            `json:"name"`
	State       string            `json:"state,omitempty"`
	Holder      string            `json:"holder,omitempty"`
	Token       int64             `json:"token,omitempty"`
	Since       time.Time         `json:"since,omitzero"`
	Until       time.Time         `json:"until,omitzero"`
	RemainingMS int64             `json:"remaining_ms,omitempty"`
	Shared      bool              `json:"shared,omitempty"`
	Limit       int               `json:"limit,omitempty"`
	Weight      int               `json:"weight,omitempty"`
	Others      []lockView        `json:"others,omitempty"` // the other holds, if there are several
	Waiting     int               `json:"waiting,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func newLockView(rec holdfast.Record) lockView {
	v := lockView{
		Name:        rec.Name,
		State:       recordState(rec),
		Holder:      rec.Holder,
		Token:       rec.Token,
		RemainingMS: max(rec.Remaining.Milliseconds(), 0),
		Shared:      rec.Limit == driver.Shared,
		Limit:       max(rec.Limit, 0),
		Weight:      rec.Weight,
		Waiting:     rec.Waiting,
		Metadata:    rec.Metadata,
	}
	v.Since, v.Until = jsonTime(rec.Since), jsonTime(rec.Until)
	for _, other := range rec.Others {
		v.Others = append(v.Others, newLockView(other))
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

func recordState(rec holdfast.Record) string {
	if rec.Kept {
		return stateKept
	}
	return stateHeld
}

// holdAge returns how long ago a hold began, by the clock of the store if that is known. ok is
// false if the beginning is not known.
func holdAge(rec holdfast.Record) (d time.Duration, ok bool) {
	if rec.Since.IsZero() {
		return 0, false
	}
	now := time.Now()
	if !rec.Until.IsZero() && rec.Remaining > 0 {
		now = rec.Until.Add(-rec.Remaining)
	}
	return max(now.Sub(rec.Since), 0), true
}

// hasExpiry reports whether a hold ends by itself. A key of a foreign client may have no expiry, and
// the session of an advisory lock has none. In its last millisecond a hold has an end and no time
// left.
func hasExpiry(rec holdfast.Record) bool { return rec.Remaining > 0 || !rec.Until.IsZero() }

// timeLeft returns how long the store keeps a hold.
func timeLeft(rec holdfast.Record) string {
	if !hasExpiry(rec) {
		return "no expiry"
	}
	return shortDuration(max(rec.Remaining, 0))
}

// printJSON writes a value on one line of standard output.
func printJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return exitErrorFor(err)
	}
	return writeOutput(line)
}

// jsonLine encodes a value on one line, without a character that a terminal might take for a
// command.
func jsonLine(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // names are easier to find
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	var line []byte
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			line = utf8.AppendRune(line, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	return line, nil
}

// writeOutput writes data to standard output.
func writeOutput(data []byte) error {
	if _, err := os.Stdout.Write(data); err != nil {
		return &exitError{exitOutput, err, ""}
	}
	return nil
}
