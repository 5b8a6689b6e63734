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
// A request writes the line of its entry in the place where it is, or that of a new one where a
// line is blank, or at the end. That of an entry that has ended becomes blank. Spaces fill a line
// up. It is in one page, so a kill leaves the former line or the new one: the kernel writes what is
// in one page whole or not at all. Each line is a change of its own: nothing but its end makes an
// entry a hold.
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.

// nameFormat is the number in the first field of a name's file. A later format that this version
// must not misread gets another number.
const nameFormat = 6

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
	// pageSize is the size of what the kernel writes whole or not at all when the process is
	// killed.
	pageSize   = 4096
	headerSize = 2048

	// roomStep divides the sizes of rooms, so that an entry fits into that of another.
	roomStep = 64

	headerText = `{"holdfast":%d,"boot":"%s","boot_began_ms":%d,"name":%s}`
	entryText  = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%19d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`

	// mostRead is the size of the greatest file that is read.
	mostRead = 16 << 20
)

// fill returns a line that fills a room up.
func fill(line []byte, size int) []byte {
	line = append(line, blank[:size-len(line)]...)
	line[size-1] = '\n'
	return line
}

var blank = bytes.Repeat([]byte(" "), pageSize)

// encode returns the header as it is written.
func (h *header) encode() []byte {
	return fill(fmt.Appendf(nil, headerText, nameFormat, h.boot, h.began, encodeJSON(h.name)), headerSize)
}

func encodeEntry(e *entry) []byte {
	return fmt.Appendf(nil, entryText, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached,
		e.Data.session, e.Owner, e.Data.public)
}

// decodeFile reads the text of a name's file: the header, the entries in their order, and where
// lines are blank.
func decodeFile(text []byte) (h header, entries []entry, free []room, err error) {
	if len(bytes.Trim(text, "\x00")) == 0 {
		return h, nil, nil, errUnmade
	}
	line, _, isLine := bytes.Cut(text[:min(len(text), headerSize)], lineEnd)
	f := fields{rest: line, ok: isLine && len(line) == headerSize-1}
	if format := f.number(`{"holdfast":`, 0, math.MaxInt64); f.ok && format != nameFormat {
		return h, nil, nil, fmt.Errorf("%w: it has the format %d of another version", errNotOurs, format)
	}
	h.bootMark = f.bootMark()
	err = json.Unmarshal(slices.Concat(brace, f.rest), &struct {
		Name *string `json:"name"`
	}{&h.name})
	if err != nil || !f.ok || h.name == "" {
		return h, nil, nil, errNotOurs
	}
	entries = make([]entry, 0, len(text)/256)
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
	byToken := func(a, b entry) int { return cmp.Compare(a.Token, b.Token) }
	slices.SortFunc(entries, byToken)
	if n := len(entries); len(slices.CompactFunc(entries, func(a, b entry) bool { return a.Token == b.Token })) < n {
		return h, nil, nil, errNotOurs
	}
	return h, entries, free, nil
}

var lineEnd, brace = []byte("\n"), []byte("{")

var (
	errUnmade  = errors.New("its maker was killed")
	errNotOurs = errors.New("it is not what this store has written")
)

// isCutHeader reports whether text begins as a header does, as far as it goes.
func isCutHeader(text []byte) bool {
	const begin = `{"holdfast":`
	return strings.HasPrefix(begin, string(text[:min(len(begin), len(text))]))
}

// decodeEntry is the reverse of encodeEntry.
func decodeEntry(line []byte) (e entry, ok bool) {
	f := fields{rest: line, ok: true}
	e.Token = f.number(`{"token":`, 1, driver.MaxToken)
	e.Tokens = int(f.number(`"tokens":`, 1, driver.MaxTokens))
	e.Limit = int(f.number(`"limit":`, 1, driver.Shared))
	e.Until = time.Duration(f.number(`"until_ns":`, 1, math.MaxInt64/2))
	e.Kept = f.flag(`"kept":`)
	e.Data.detached = f.flag(`"detached":`)
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

func (f *fields) flag(key string) bool {
	isSet, err := strconv.ParseBool(string(f.next(key)))
	f.ok = f.ok && err == nil
	return isSet
}

func (f *fields) text(key string) string {
	text := f.next(key)
	f.ok = f.ok && len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"'
	return string(bytes.Trim(text, `"`))
}

func (f *fields) bootMark() bootMark {
	return bootMark{boot: f.text(`"boot":`), began: f.number(`"boot_began_ms":`, math.MinInt64, math.MaxInt64)}
}

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
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("filestore: numbers and texts have no JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
