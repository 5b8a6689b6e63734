package filestore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// The file of a name has lines of JSON: a header, and one for each hold and place, in any order.
//
//	{"holdfast":6,"boot":"…","boot_began_ms":9,"name":"deploy"}
//	{"token":9,"tokens":1,"limit":1,"until_ns":          9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//
// A request writes the line of its entry in the room where it is, or that of a new one into a blank
// room, or at the end. The room of an entry that has ended becomes blank. Spaces fill a room up. It
// lies in one page, so a kill leaves the former line or the new one: the kernel writes what is in
// one page whole or not at all. Each line is a change of its own: nothing but its end makes an
// entry a hold.
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.

// A header is the first line of a name's file.
type header struct {
	name string
	bootMark
}

// entryData is what the file has of an entry beside what the rule knows. The Owner of an entry is
// the SHA-256 of the secret, so that the right to read the folder is no right to release the holds
// in it.
type entryData struct {
	session  string // gets the notices, and ends the entry when its process dies
	detached bool   // the session does not end it
	public   []byte // JSON from the field "since" on
	room     room   // zero for a new one
}

// A room is where a line is, or may be written. Its size includes the end of the line.
type room struct{ at, size int }

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
	// nameFormat is the number in the first field of a name's file. A later format that this
	// version must not misread gets another number.
	nameFormat = 6

	headerText = `{"holdfast":%d,"boot":"%s","boot_began_ms":%d,"name":%s}`
	entryText  = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%19d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`

	// pageSize is the size of what the kernel writes whole or not at all when the process is
	// killed. A room has a part of it, where it lies at a multiple of its size.
	pageSize   = 4096
	headerSize = 2048
	leastRoom  = 256

	// mostRead is the size of the greatest file that is read. Half of it is filled.
	mostRead = 16 << 20
)

var (
	lineEnd, brace = []byte("\n"), []byte("{")

	errNotOurs = errors.New("it is not what this store has written")
)

// encode returns the header as it is written.
func (h *header) encode() []byte {
	return fmt.Appendf(nil, headerText, nameFormat, h.Boot, h.Began, encodeJSON(h.name))
}

func encodeEntry(e *entry) []byte {
	return fmt.Appendf(nil, entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached,
		e.Data.session, e.Owner, e.Data.public)
}

// fill returns a line that fills a room up.
func fill(line []byte, size int) []byte {
	line = append(line, bytes.Repeat([]byte(" "), size-len(line))...)
	line[size-1] = '\n'
	return line
}

// decodeFile reads the text of a name's file: the header, the entries in their order, and the blank
// rooms.
func decodeFile(text []byte) (h header, entries []entry, free []room, err error) {
	line, _, isLine := bytes.Cut(text[:min(len(text), headerSize)], lineEnd)
	f := fields{rest: bytes.TrimRight(line, "} "), ok: isLine && len(line) == headerSize-1}
	if format := f.number(`{"holdfast":`, 0, math.MaxInt64); f.ok && format != nameFormat {
		return h, nil, nil, fmt.Errorf("%w: it has the format %d of another version", errNotOurs, format)
	}
	h.Boot, h.Began = f.text(`"boot":`), f.number(`"boot_began_ms":`, math.MinInt64, math.MaxInt64)
	name, isName := bytes.CutPrefix(f.rest, []byte(`"name":`))
	if err := json.Unmarshal(name, &h.name); err != nil || !f.ok || !isName || h.name == "" {
		return h, nil, nil, errNotOurs
	}
	entries = make([]entry, 0, len(text)/leastRoom)
	for at := headerSize; at < len(text); {
		line, _, isLine := bytes.Cut(text[at:], lineEnd)
		place := room{at, len(line) + 1}
		at += place.size
		isLine = isLine && place.size <= pageSize
		if line = bytes.TrimRight(line, " "); isLine && len(line) == 0 {
			free = append(free, place)
			continue
		}
		e, ok := decodeEntry(line)
		if e.Data.room = place; !ok || !isLine {
			return h, nil, nil, errNotOurs
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Token, b.Token) })
	for i := range entries {
		if i > 0 && entries[i].Token == entries[i-1].Token {
			return h, nil, nil, errNotOurs
		}
	}
	return h, entries, free, nil
}

// decodeEntry is the reverse of encodeEntry.
func decodeEntry(line []byte) (e entry, ok bool) {
	f := fields{rest: line, ok: true}
	e.Token = f.number(`{"token":`, 1, driver.MaxToken)
	e.Tokens = int(f.number(`"tokens":`, 1, driver.MaxTokens))
	e.Limit = int(f.number(`"limit":`, 1, driver.Shared))
	e.Until = time.Duration(f.number(`"until_ns":`, 1, math.MaxInt64/2))
	e.Kept = string(f.next(`"kept":`)) == "true"
	e.Data.detached = string(f.next(`"detached":`)) == "true"
	e.Data.session = f.text(`"session":`)
	e.Owner = f.text(`"owner_sha256":`)
	e.Data.public = f.rest
	return e, f.ok && len(e.Data.session) == sessionIDLen && len(e.Owner) == 2*sha256.Size
}

// fields are those of a line of JSON, which are read in the order in which they are written.
type fields struct {
	rest []byte
	ok   bool // all were as they are written
}

func (f *fields) next(key string) []byte {
	end := bytes.IndexByte(f.rest, ',')
	if end < len(key) || string(f.rest[:len(key)]) != key {
		f.ok = false
		return nil
	}
	value := f.rest[len(key):end]
	f.rest = f.rest[end+1:]
	return value
}

func (f *fields) number(key string, least, most int64) int64 {
	n, err := strconv.ParseInt(string(bytes.TrimLeft(f.next(key), " ")), 10, 64)
	f.ok = f.ok && err == nil && least <= n && n <= most
	return n
}

func (f *fields) text(key string) string { return string(bytes.Trim(f.next(key), `"`)) }

// decodePublic returns what people see of an entry, as far as it can be read: it is for display
// only.
func (d *entryData) decodePublic() (public publicData) {
	_ = json.Unmarshal(slices.Concat(brace, d.public), &public)
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
	_ = encoder.Encode(value) // Numbers and texts always have JSON.
	return bytes.TrimSuffix(b.Bytes(), lineEnd)
}
