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
)

// States of a lock that is listed.
const (
	stateHeld = "held"
	stateKept = "kept" // released, but not free before its --min-hold is over
)

// A view is a lock as --json shows it. What the store does not know is left out.
type view struct {
	Name        string            `json:"name"`
	State       string            `json:"state,omitempty"`
	Holder      string            `json:"holder,omitempty"`
	Token       int64             `json:"token,omitempty"`
	Since       time.Time         `json:"since,omitzero"`
	Until       time.Time         `json:"until,omitzero"`
	RemainingMS int64             `json:"remaining_ms,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func viewOf(rec holdfast.Record) view {
	v := view{
		Name:        rec.Name,
		State:       stateOf(rec),
		Holder:      rec.Holder,
		Token:       rec.Token,
		RemainingMS: rec.Remaining.Milliseconds(),
		Metadata:    rec.Metadata,
	}
	// A zero time would not be one in UTC.
	if !rec.Since.IsZero() {
		v.Since = rec.Since.UTC()
	}
	if !rec.Until.IsZero() {
		v.Until = rec.Until.UTC()
	}
	return v
}

func stateOf(rec holdfast.Record) string {
	if rec.Kept {
		return stateKept
	}
	return stateHeld
}

// age is how long ago a hold began, by the clock of the store if that is known;
// ok is false if nothing is known of it.
func age(rec holdfast.Record) (d time.Duration, ok bool) {
	if rec.Since.IsZero() {
		return 0, false
	}
	now := time.Now()
	if !rec.Until.IsZero() && rec.Remaining > 0 {
		now = rec.Until.Add(-rec.Remaining)
	}
	return max(now.Sub(rec.Since), 0), true
}

// printJSON writes a value on one line of standard output.
func printJSON(v any) error {
	line, err := jsonLine(v)
	if err != nil {
		return failure(err)
	}
	return output(line)
}

// jsonLine is a value on one line, without a character that a terminal might take
// for a command.
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

// output writes data to standard output.
func output(data []byte) error {
	if _, err := os.Stdout.Write(data); err != nil {
		return &exit{exitOutput, err, ""}
	}
	return nil
}
