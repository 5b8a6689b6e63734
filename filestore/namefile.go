package filestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// The file of a name has a header, which is a line of JSON with spaces up to a fixed size, and the
// entries, which are JSON too, with a line for each:
//
//	{"holdfast":3,"name":"deploy","boot":"…","boot_began_ms":9,"at":2048,"size":300}
//	[
//	 {"token":9,"tokens":1,"limit":1,"until_ns":9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	,{"token":10,…}
//	]
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
//
// A change writes the entries where the former ones are not, and then the header, which says where
// the entries are. So a kill leaves the former ones or the new ones.

// nameFormat is the number in the first field of a name's file. A later format that this version
// must not misread gets another number.
const nameFormat = 3

// A header is the first line of a name's file.
type header struct {
	Format int    `json:"holdfast"`
	Name   string `json:"name"`
	bootMark
	At   int64 `json:"at"` // of the entries, in bytes
	Size int64 `json:"size"`
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that the right to read the folder is no right to release the holds
// in it.
type entryData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   string // JSON from the field "since" on
	line     string // the entry as it was read; "" for a new one
}

type (
	queue = lockqueue.Queue[entryData]
	entry = lockqueue.Entry[entryData]
)

// publicData is what people see of an entry.
type publicData struct {
	Since    time.Time         `json:"since"`
	Holder   string            `json:"holder"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	// headerSize is the size of a header, which is in one page of the file: the kernel writes a
	// page whole or not at all when the process is killed.
	headerSize = 2048

	entriesBegin = "[\n"
	entryText    = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`
	entriesEnd   = "]\n"

	// mostRead is the size of the most entries that are read.
	mostRead = 16 << 20
)

// encode returns the header as it is written.
func (h *header) encode() []byte {
	line := bytes.Repeat([]byte(" "), headerSize)
	copy(line, encodeJSON(h))
	line[headerSize-1] = '\n'
	return line
}

// encodeEntries returns the entries of a queue as they are written, of which that of an owner may
// have changed since it was read.
func encodeEntries(q *queue, owner string) []byte {
	text := make([]byte, 0, 384*q.Len())
	text = append(text, entriesBegin...)
	separator := byte(' ')
	for _, e := range q.Entries() {
		text = append(text, separator)
		if e.Data.line != "" && e.Owner != owner {
			text = append(text, e.Data.line...)
		} else {
			text = fmt.Appendf(text, entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept,
				e.Data.detached, e.Data.session, e.Owner, e.Data.public)
		}
		text = append(text, '\n')
		separator = ','
	}
	return append(text, entriesEnd...)
}

// readFile reads a name's file: its header, and its entries as they are written, and in their order.
// With errNotOurs, text is the line of the header.
func readFile(file *os.File) (h header, text string, entries []entry, err error) {
	line := make([]byte, headerSize)
	n, err := file.ReadAt(line, 0)
	if err != nil && err != io.EOF {
		return h, "", nil, err
	}
	line = bytes.TrimRight(line[:n], " \n")
	text = string(line)
	err = json.Unmarshal(line, &h)
	switch {
	case len(bytes.Trim(line, "\x00")) == 0:
		return h, "", nil, errUnmade
	case err == nil && h.Format > 0 && h.Format != nameFormat:
		return h, text, nil, fmt.Errorf("%w: it has the format %d of another version", errNotOurs, h.Format)
	case err != nil || n < headerSize || h.Format != nameFormat || h.Name == "" ||
		h.At < headerSize || h.At > 4*mostRead || h.Size < 0 || h.Size > mostRead:
		return h, text, nil, errNotOurs
	}
	body := make([]byte, h.Size)
	if _, err := file.ReadAt(body, h.At); err != nil && err != io.EOF {
		return h, "", nil, err
	}
	all := string(body)
	rest, begins := strings.CutPrefix(all, entriesBegin)
	rest, ends := strings.CutSuffix(rest, entriesEnd)
	if !begins || !ends {
		return h, text, nil, errNotOurs
	}
	entries = make([]entry, 0, len(rest)/256)
	for separator, last := " ", int64(0); rest != ""; separator = "," {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line, isSeparate := strings.CutPrefix(line, separator)
		e, ok := decodeEntry(line)
		if !isSeparate || !ok || e.Token <= last || e.Token > driver.MaxToken {
			return h, text, nil, errNotOurs
		}
		last = e.Token
		entries = append(entries, e)
	}
	return h, all, entries, nil
}

var (
	errUnmade  = errors.New("its maker was killed")
	errNotOurs = errors.New("it is not what this store has written")
)

// decodeEntry is the reverse of entryText.
func decodeEntry(line string) (e entry, ok bool) {
	rest, ok := line, true
	field := func(key string) string {
		value, after, isThere := strings.Cut(rest, ",")
		value, isNext := strings.CutPrefix(value, key)
		rest, ok = after, ok && isThere && isNext
		return value
	}
	number := func(key string, most int64) int64 {
		n, err := strconv.ParseInt(field(key), 10, 64)
		ok = ok && err == nil && 0 < n && n <= most
		return n
	}
	flag := func(key string) bool {
		isSet, err := strconv.ParseBool(field(key))
		ok = ok && err == nil
		return isSet
	}
	hex := func(key string, size int) string {
		text := field(key)
		ok = ok && len(text) == size+len(`""`)
		return strings.Trim(text, `"`)
	}
	e.Token = number(`{"token":`, driver.MaxToken)
	e.Tokens = int(number(`"tokens":`, driver.MaxTokens))
	e.Limit = int(number(`"limit":`, driver.Shared))
	e.Until = time.Duration(number(`"until_ns":`, math.MaxInt64/2))
	e.Kept = flag(`"kept":`)
	e.Data.detached = flag(`"detached":`)
	e.Data.session = hex(`"session":`, sessionIDLen)
	e.Owner = hex(`"owner_sha256":`, 2*sha256.Size)
	e.Data.public = rest
	e.Data.line = line
	return e, ok
}

// decodePublic returns what people see of an entry, as far as it can be read: it is for display
// only.
func (d *entryData) decodePublic() (public publicData) {
	_ = json.Unmarshal([]byte("{"+d.public), &public)
	text := public.Holder
	for key, value := range public.Metadata {
		text += key + value
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return publicData{} // Somebody else has written it.
	}
	return public
}

// encodeJSON returns value on one line, in which people can read "<" and "&".
func encodeJSON(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("filestore: numbers and texts have no JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
