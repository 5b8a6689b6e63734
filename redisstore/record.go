package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// errReply is the error for a reply that no Redis server sends.
func errReply(what string) error {
	return fmt.Errorf("the server's answer is not understood: %s", what)
}

// parseRecord reads the scripts' description of a hold; see lua/describe.lua. A value that no
// client of this package can have written belongs to another kind of client, whatever it looks
// like: the record has only its times then.
func parseRecord(name string, reply []any) (olddriver.Record, error) {
	if len(reply) < 4 {
		return olddriver.Record{}, errReply("a description that is too short")
	}
	kind, _ := reply[0].(string)
	left, _ := reply[1].(int64)
	ends, _ := reply[2].(int64)
	text, _ := reply[3].(string)
	if kind == "free" {
		return olddriver.Record{}, nil
	}
	rec := olddriver.Record{Name: name, Kept: kind == "kept"}
	if len(reply) > 4 {
		waiting, _ := reply[4].(int64)
		rec.Waiting = int(waiting)
	}
	if left >= 0 && ends >= 0 { // A foreign hold may have no end.
		rec.Remaining = time.Duration(min(left, maxMillis)) * time.Millisecond
		rec.Until = time.UnixMilli(min(ends, lastMilli))
	}
	if kind == "held" || len(reply) > 6 {
		fillRecord(&rec, text)
	}
	if len(reply) > 6 {
		limit, _ := reply[6].(int64)
		rec.Limit = int(limit)
	}
	if len(reply) > 7 {
		others, _ := reply[7].([]any)
		for _, words := range others {
			words, _ := words.([]any)
			other, err := parseRecord(name, words)
			if err != nil {
				return olddriver.Record{}, err
			}
			rec.Others = append(rec.Others, other)
		}
	}
	return rec, nil
}

// Bounds on times, which those of a foreign key may exceed.
const (
	// maxMillis is a hundred years: less than half of the maximum of a Duration, so that sums do
	// not overflow.
	maxMillis = 100 * 365 * 24 * 60 * 60 * 1000

	// lastMilli is a day before the end of the year 9999, the last year that a time in JSON can
	// have, in any time zone.
	lastMilli = 253402300799999 - 24*60*60*1000
)

// fillRecord adds the contents of a lock's value: token, seconds and microseconds of its begin by
// the server's clock, holder, metadata; a line each, the last only if there is any. It adds nothing
// if one of them is not in the form that this package writes.
func fillRecord(rec *olddriver.Record, text string) {
	lines := strings.SplitN(text, "\n", 5)
	if len(lines) < 4 {
		return
	}
	token, err := strconv.ParseInt(lines[0], 10, 64)
	since, ok := serverTime(lines[1], lines[2])
	if err != nil || token > driver.MaxToken || !ok || !isPlain(lines[3]) || len(lines[3]) > driver.MaxName {
		return
	}
	var metadata map[string]string
	if len(lines) == 5 {
		if json.Unmarshal([]byte(lines[4]), &metadata) != nil || !isMetadata(metadata) {
			return
		}
	}
	rec.Token, rec.Since, rec.Holder, rec.Metadata = token, since, lines[3], metadata
}

// serverTime reads the two numbers of a reply to the command TIME, and reports whether they are a
// time up to the year 9999.
func serverTime(seconds, micros string) (time.Time, bool) {
	sec, err := strconv.ParseInt(seconds, 10, 64)
	usec, err2 := strconv.ParseInt(micros, 10, 64)
	if err != nil || err2 != nil || sec < 0 || sec > lastMilli/1000 || usec < 0 || usec >= 1e6 {
		return time.Time{}, false
	}
	return time.Unix(sec, usec*1000), true
}

// isPlain reports whether a text has only characters that names have.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// isMetadata reports whether metadata are within the bounds of package driver.
func isMetadata(metadata map[string]string) bool {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size <= driver.MaxMetadata && len(metadata) <= driver.MaxMetadataEntries
}
