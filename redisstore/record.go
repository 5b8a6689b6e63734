package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// public makes the part of a lock's value that the client knows and everybody
// may: the holder on a line, and the metadata on another if there is any.
func public(req *driver.AcquireRequest) (string, error) {
	if len(req.Metadata) == 0 {
		return req.Holder, nil
	}
	metadata, err := json.Marshal(req.Metadata)
	if err != nil {
		return "", fmt.Errorf("%w: metadata: %w", driver.ErrInvalid, err)
	}
	return req.Holder + "\n" + string(metadata), nil
}

// errReply is the end of a server that answers what no Redis does.
func errReply(what string) error {
	return fmt.Errorf("the server's answer is not understood: %s", what)
}

// parseRecord reads what the scripts say of a hold; see lua/describe.lua.
func parseRecord(name string, reply []any) (driver.Record, error) {
	if len(reply) != 4 {
		return driver.Record{}, errReply("a description of another length than 4")
	}
	kind, _ := reply[0].(string)
	left, _ := reply[1].(int64)
	ends, _ := reply[2].(int64)
	text, _ := reply[3].(string)
	rec := driver.Record{Name: name, Kept: kind == "kept"}
	if left >= 0 && ends >= 0 { // A foreign hold may have no end.
		rec.Remaining = time.Duration(left) * time.Millisecond
		rec.Until = time.UnixMilli(ends)
	}
	if kind == "held" {
		return rec, fillRecord(&rec, text)
	}
	return rec, nil
}

// fillRecord adds what the value of a lock says: token, seconds and microseconds
// of its begin by the server's clock, holder, metadata; a line each, the last only
// if there is any.
func fillRecord(rec *driver.Record, text string) error {
	lines := strings.SplitN(text, "\n", 5)
	if len(lines) < 4 {
		return fmt.Errorf("%w: a value of %d lines", driver.ErrCorrupt, len(lines))
	}
	token, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: a token of %d digits", driver.ErrCorrupt, len(lines[0]))
	}
	rec.Token, rec.Holder = token, lines[3]
	rec.Since = serverTime(lines[1], lines[2])
	if len(lines) == 5 {
		if err := json.Unmarshal([]byte(lines[4]), &rec.Metadata); err != nil {
			return fmt.Errorf("%w: the metadata in the value cannot be read", driver.ErrCorrupt)
		}
	}
	return nil
}

// serverTime reads the two numbers that the command TIME answers, zero if they
// are none.
func serverTime(seconds, micros string) time.Time {
	sec, err := strconv.ParseInt(seconds, 10, 64)
	usec, err2 := strconv.ParseInt(micros, 10, 64)
	if err != nil || err2 != nil {
		return time.Time{}
	}
	return time.Unix(sec, usec*1000)
}
