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
)

// errReply is the error for a reply that no Redis server sends.
func errReply(what string) error {
	return fmt.Errorf("the server's answer is not understood: %s", what)
}

// parseRecords reads the answer of the scripts for a lookup: how many places there are, and holds.
func parseRecords(name string, reply any) ([]driver.Record, error) {
	words, _ := reply.([]any)
	if len(words) != 2 {
		return nil, errReply("no list of holds")
	}
	descriptions, _ := words[1].([]any)
	var records []driver.Record
	for _, description := range descriptions {
		rec, err := parseRecord(name, words[0], description)
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// parseRecord reads the scripts' description of a hold: its kind, how many ms are left, the limit,
// and the public part. A value that no client of this package can have written belongs to another
// kind of client, whatever it looks like: the record has only its times then.
func parseRecord(name string, places, description any) (driver.Record, error) {
	words, _ := description.([]any)
	if len(words) < 4 {
		return driver.Record{}, errReply("a description that is too short")
	}
	left, _ := words[1].(int64)
	limit, _ := words[2].(int64)
	text, _ := words[3].(string)
	waiting, _ := places.(int64)
	rec := driver.Record{Name: name, Waiting: int(waiting)}
	if left >= 0 { // A foreign hold may have no end.
		rec.Remaining = max(1, time.Duration(min(left, maxMillis))*time.Millisecond)
	}
	if words[0] != "foreign" && fillRecord(&rec, text) {
		rec.Limit = int(limit)
		if rec.Kept = words[0] == "kept"; rec.Kept {
			rec.Holder = ""
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
// and returns false if one of them is not in the form that this package writes.
func fillRecord(rec *driver.Record, text string) bool {
	lines := strings.SplitN(text, "\n", 5)
	if len(lines) < 4 {
		return false
	}
	token, err := strconv.ParseInt(lines[0], 10, 64)
	since, ok := serverTime(lines[1], lines[2])
	if err != nil || token < 1 || token > driver.MaxToken || !ok || !isPlain(lines[3]) || len(lines[3]) > driver.MaxName {
		return false
	}
	var metadata map[string]string
	if len(lines) == 5 {
		if json.Unmarshal([]byte(lines[4]), &metadata) != nil || !isMetadata(metadata) {
			return false
		}
	}
	rec.Token, rec.Since, rec.Holder, rec.Metadata = token, since, lines[3], metadata
	return true
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
