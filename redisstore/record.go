package redisstore

import (
	"encoding/json"
	"errors"
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

// maxMillis is a hundred years: less than half of the maximum of a Duration, so that sums do not
// overflow. The time of a foreign key may be longer.
const maxMillis = 100 * 365 * 24 * 60 * 60 * 1000

// maxText is above the length of every text that this package writes: of the metadata, a byte may
// be six in JSON.
const maxText = 8 * driver.MaxMetadata

// fillRecord adds the contents of a lock's value: token, seconds and microseconds of its begin by
// the server's clock, holder, metadata; a line each, the last only if there is any. It adds nothing
// and returns false if one of them is not in the form that this package writes. The number of bits
// of the seconds keeps the year below 10000, which JSON wants.
func fillRecord(rec *driver.Record, text string) bool {
	lines := append(strings.SplitN(text, "\n", 5), "null")
	if len(lines) < 5 || len(text) > maxText {
		return false
	}
	token, err := strconv.ParseUint(lines[0], 10, 53)
	seconds, err2 := strconv.ParseUint(lines[1], 10, 37)
	micros, err3 := strconv.ParseUint(lines[2], 10, 20)
	var metadata map[string]string
	err4 := json.Unmarshal([]byte(lines[4]), &metadata)
	if errors.Join(err, err2, err3, err4) != nil || token == 0 || !isPlain(lines[3]) || len(lines[3]) > driver.MaxName {
		return false
	}
	rec.Token, rec.Since, rec.Holder, rec.Metadata = int64(token), time.Unix(int64(seconds), int64(micros)*1000), lines[3], metadata
	return true
}

// isPlain reports whether a text has only characters that names have.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
