package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// decodeRecord reads the contents of a record file. Nothing, or nothing but
// zeros, is what a power loss or a creation cut short leaves: a free name.
func decodeRecord(data []byte) (record, error) {
	r := record{State: stateFree}
	if len(bytes.Trim(data, "\x00")) == 0 {
		return r, nil
	}
	if len(data) > recordLimit {
		return r, fmt.Errorf("it is longer than the %d bytes of any record", recordLimit)
	}
	line, rest, _ := bytes.Cut(data, []byte{'\n'})
	if len(bytes.TrimLeft(rest, " \n")) > 0 {
		return r, errNoRecord
	}
	if !r.scan(line) {
		r = record{State: stateFree}
		if json.Unmarshal(line, &r) != nil {
			return r, errNoRecord
		}
	}
	return r, r.check()
}

var errNoRecord = errors.New("it is not a record of this store")

// scan reads the line of an ordinary record in a tenth of the time that package
// encoding/json takes, which matters beside a request's few system calls. It
// reports false if it finds anything out of the ordinary, and leaves that to the
// package: metadata, escapes, spaces, unknown fields.
func (r *record) scan(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte(`{"`))
	for ok {
		key, value, found := bytes.Cut(rest, []byte(`":`))
		if !found {
			return false
		}
		end := bytes.Index(value, []byte(`,"`))
		if end < 0 {
			last, closed := bytes.CutSuffix(value, []byte{'}'})
			return closed && r.set(key, last)
		}
		ok = r.set(key, value[:end])
		rest = value[end+len(`,"`):]
	}
	return false
}

// set sets one field of r to a value in JSON.
func (r *record) set(key, value []byte) bool {
	switch string(key) {
	case "holdfast":
		return setNumber(&r.Format, value)
	case "token":
		return setNumber(&r.Token, value)
	case "after":
		return setNumber(&r.After, value)
	case "expires_ns":
		return setNumber(&r.Expires, value)
	case "name":
		return setText(&r.Name, value)
	case "state":
		return setText(&r.State, value)
	case "holder":
		return setText(&r.Holder, value)
	case "since":
		return setText(&r.Since, value)
	case "until":
		return setText(&r.Until, value)
	case "owner_sha256":
		return setText(&r.Owner, value)
	case "boot":
		return setText(&r.Boot, value)
	case "session":
		return setText(&r.Session, value)
	}
	return false
}

func setText(field *string, value []byte) bool {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return false
	}
	value = value[1 : len(value)-1]
	for _, c := range value {
		if c == '"' || c == '\\' || c < ' ' {
			return false
		}
	}
	*field = string(value)
	return utf8.Valid(value)
}

func setNumber[T ~int64](field *T, value []byte) bool {
	if len(value) == 0 || len(value) > 18 || value[0] == '0' {
		return false
	}
	var n T
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + T(c-'0')
	}
	*field = n
	return true
}

func (r *record) check() error {
	switch {
	case r.Format == 0:
		return errNoRecord
	case r.Format != recordFormat:
		return fmt.Errorf("it has the format %d of another version of this store", r.Format)
	case r.State != stateFree && r.State != stateHeld && r.State != stateKept:
		return errors.New("its state is none of free, held and kept")
	case r.Token <= 0 || r.Token > driver.MaxToken:
		return errors.New("its token is out of range")
	case r.Session != "" && !isSessionID(r.Session):
		return errors.New("its session is not the name of one")
	case len(r.Packed)%2 != 0:
		return errors.New("its metadata is not made of pairs")
	}
	return nil
}
