package filestore

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// recordLimit is the greatest size of a record: a page, so that the one
	// write that replaces a record is whole or did not happen, whenever its
	// process is killed.
	recordLimit = 4096

	// plainMetadata is how much room metadata may take in plain JSON. With the
	// longest name, holder and the rest that is still within recordLimit.
	plainMetadata = 2048

	// recordFormat is the number in the first field of every file. A later
	// version that others must not misread will have another.
	recordFormat = 1
)

// encode returns the line for r, followed by spaces up to size bytes, so that it
// covers what it replaces. It is written out by hand since package encoding/json
// would take as long as all the system calls of a request together.
func (r *record) encode(size int) ([]byte, error) {
	b := make([]byte, 0, max(size, 512))
	b = append(b, `{"holdfast":`...)
	b = strconv.AppendInt(b, recordFormat, 10)
	b = appendText(b, "name", r.Name)
	b = appendText(b, "state", r.State)
	b = appendText(b, "holder", r.Holder)
	b = appendNumber(b, "token", r.Token)
	b = appendNumber(b, "after", r.After)
	b = appendText(b, "since", r.Since)
	b = appendText(b, "until", r.Until)
	b = appendMetadata(b, r.metadata())
	b = appendText(b, "owner_sha256", r.Owner)
	b = appendText(b, "boot", r.Boot)
	b = appendNumber(b, "expires_ns", int64(r.Expires))
	b = appendText(b, "session", r.Session)
	b = append(b, '}', '\n')
	if len(b) > recordLimit {
		return nil, fmt.Errorf("%w: name, holder and metadata need a record of %d bytes, and %d is the limit",
			driver.ErrInvalid, len(b), recordLimit)
	}
	for len(b) < size {
		b = append(b, ' ')
	}
	return b, nil
}

func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// appendText appends a field, unless it is empty.
func appendText(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	return appendQuoted(appendKey(b, key), value)
}

// appendNumber appends a field, unless it is zero.
func appendNumber(b []byte, key string, value int64) []byte {
	if value == 0 {
		return b
	}
	return strconv.AppendInt(appendKey(b, key), value, 10)
}

// appendQuoted appends text, which is UTF-8, as JSON.
func appendQuoted(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendMetadata(b []byte, metadata map[string]string) []byte {
	if len(metadata) == 0 {
		return b
	}
	plain := appendKey(b, "metadata")
	sep, valid := byte('{'), true
	for key, value := range metadata {
		valid = valid && utf8.ValidString(key) && utf8.ValidString(value)
		plain = appendQuoted(append(plain, sep), key)
		plain = appendQuoted(append(plain, ':'), value)
		sep = ','
	}
	if valid && len(plain)-len(b) < plainMetadata {
		return append(plain, '}')
	}
	return appendPacked(b, metadata)
}

func appendPacked(b []byte, metadata map[string]string) []byte {
	b = appendKey(b, "metadata_base64")
	sep := byte('[')
	for key, value := range metadata {
		for _, text := range []string{key, value} {
			b = append(b, sep, '"')
			b = base64.StdEncoding.AppendEncode(b, []byte(text))
			b = append(b, '"')
			sep = ','
		}
	}
	return append(b, ']')
}
