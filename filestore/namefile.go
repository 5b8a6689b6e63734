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
//	{"holdfast":5,"boot":"…","boot_began_ms":9,"change":9,"at":2048,"size":300,"name":"deploy"}
//	[
//	 {"token":9,"tokens":1,"limit":1,"until_ns":          9,"kept":false,"detached":false,"session":"…","owner_sha256":"…","since":"…","holder":"…"}
//	,{"token":10,…}
//	]
//
// The fields of an entry up to the owner always stand in this order, and are read as they are
// written: a request reads all entries of its name. The rest is for people, and is read when it is
// shown.
//
// A change writes the entries where the former ones are not, and then the header, which says where
// they are, and has another number for each change. So a kill leaves the former ones or the new
// ones: the kernel writes what is in one page whole or not at all. The end of an entry is changed
// in place, since a renewal changes nothing else.

// nameFormat is the number in the first field of a name's file. A later format that this version
// must not misread gets another number.
const nameFormat = 5

// A header is the first line of a name's file.
type header struct {
	name string
	bootMark
	change   int64 // no other header of the name has had it
	at, size int64 // of the entries, in bytes
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
	// pageSize is the size of what the kernel writes whole or not at all when the process is
	// killed. A header is in one page.
	pageSize   = 4096
	headerSize = 2048

	headerText = `{"holdfast":%d,"boot":"%s","boot_began_ms":%d,"change":%d,"at":%d,"size":%d,"name":%s}`

	entriesBegin = "[\n"
	entryText    = `{"token":%d,"tokens":%d,"limit":%d,"until_ns":%*d,"kept":%t,"detached":%t,"session":"%s","owner_sha256":"%s",%s`
	entriesEnd   = "]\n"

	// The end of an entry has a fixed width, so that it can be changed in place.
	endKey   = `"until_ns":`
	endWidth = 19

	// maxFixed is the most that the fields of an entry up to the owner take.
	maxFixed = 384

	// mostRead is the size of the most entries that are read.
	mostRead = 16 << 20
)

// encode returns the header as it is written.
func (h *header) encode() []byte {
	line := fmt.Appendf(make([]byte, 0, headerSize), headerText,
		nameFormat, h.boot, h.began, h.change, h.at, h.size, encodeJSON(h.name))
	line = append(line, blank[:headerSize-len(line)]...)
	line[headerSize-1] = '\n'
	return line
}

// encodeEntries returns the entries of a queue as they are written, of which that of an owner may
// have changed since it was read, and where its line begins. Spaces keep each end in one page,
// where a kill leaves the former one or the new one.
func encodeEntries(q *queue, owner string) (text []byte, line int) {
	text = make([]byte, 0, 384*q.Len())
	text = append(text, entriesBegin...)
	separator := byte(' ')
	for _, e := range q.Entries() {
		written := e.Data.line
		if written == "" || e.Owner == owner {
			written = fmt.Sprintf(entryText, e.Token, e.Tokens, e.Limit, endWidth, e.Until, e.Kept,
				e.Data.detached, e.Data.session, e.Owner, e.Data.public)
		}
		end := headerSize + len(text) + strings.Index(written, endKey) + len(endKey) + 1
		if left := pageSize - end%pageSize; left < endWidth {
			text = append(text[:len(text)-1], blank[:left]...) // behind the line before it
			text = append(text, '\n')
		}
		text = append(text, separator)
		if e.Owner == owner {
			line = len(text)
		}
		text = append(text, written...)
		text = append(text, '\n')
		separator = ','
	}
	return append(text, entriesEnd...), line
}

// readHeader reads the header of a name's file. With errNotOurs, text is what is in its place.
func readHeader(file *os.File) (h header, text string, err error) {
	line := make([]byte, headerSize)
	n, err := file.ReadAt(line, 0)
	if err != nil && err != io.EOF {
		return h, "", err
	}
	text = string(line[:n])
	if strings.Trim(text, "\x00") == "" {
		return h, "", errUnmade
	}
	first, _, isLine := strings.Cut(text, "\n")
	f := fields{rest: first, ok: isLine && n == headerSize}
	if format := f.number(`{"holdfast":`, 0, math.MaxInt64); f.ok && format != nameFormat {
		return h, text, fmt.Errorf("%w: it has the format %d of another version", errNotOurs, format)
	}
	h.bootMark = f.bootMark()
	h.change = f.number(`"change":`, 1, math.MaxInt64/2)
	h.at = f.number(`"at":`, headerSize, 4*mostRead)
	h.size = f.number(`"size":`, 0, mostRead)
	err = json.Unmarshal([]byte("{"+f.rest), &struct {
		Name *string `json:"name"`
	}{&h.name})
	if err != nil || !f.ok || h.name == "" {
		return h, text, errNotOurs
	}
	return h, text, nil
}

// readEntries reads the entries of a name's file, as they are written, and in their order.
func (h *header) readEntries(file *os.File) (text string, entries []entry, err error) {
	body := make([]byte, h.size)
	if _, err := file.ReadAt(body, h.at); err != nil && err != io.EOF {
		return "", nil, err
	}
	text = string(body)
	rest, begins := strings.CutPrefix(text, entriesBegin)
	rest, ends := strings.CutSuffix(rest, entriesEnd)
	if !begins || !ends {
		return text, nil, errNotOurs
	}
	entries = make([]entry, 0, len(rest)/256)
	for separator, last := " ", int64(0); rest != ""; separator = "," {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line, isSeparate := strings.CutPrefix(line, separator)
		e, ok := decodeEntry(strings.TrimRight(line, " "))
		if !isSeparate || !ok || e.Token <= last {
			return text, nil, errNotOurs
		}
		last = e.Token
		entries = append(entries, e)
	}
	return text, entries, nil
}

var (
	errUnmade  = errors.New("its maker was killed")
	errNotOurs = errors.New("it is not what this store has written")
)

// isCutHeader reports whether text begins as a header does, as far as it goes.
func isCutHeader(text string) bool {
	const begin = `{"holdfast":`
	return strings.HasPrefix(text, begin[:min(len(begin), len(text))])
}

// decodeEntry is the reverse of entryText.
func decodeEntry(line string) (e entry, ok bool) {
	f := fields{rest: line, ok: true}
	e.Token = f.number(`{"token":`, 1, driver.MaxToken)
	e.Tokens = int(f.number(`"tokens":`, 1, driver.MaxTokens))
	e.Limit = int(f.number(`"limit":`, 1, driver.Shared))
	e.Until = time.Duration(f.number(endKey, 1, math.MaxInt64/2))
	e.Kept = f.flag(`"kept":`)
	e.Data.detached = f.flag(`"detached":`)
	e.Data.session = f.text(`"session":`)
	e.Owner = f.text(`"owner_sha256":`)
	e.Data.public = f.rest
	e.Data.line = line
	return e, f.ok && len(e.Data.session) == sessionIDLen && len(e.Owner) == 2*sha256.Size
}

// readEntry reads the fields of an entry whose line begins at a place in the file.
func readEntry(file *os.File, line int64) (entry, bool) {
	text := make([]byte, maxFixed)
	n, _ := file.ReadAt(text, line)
	return decodeEntry(string(text[:n]))
}

// writeEnd changes the end of an entry in the file, which was read as line, and begins at offset.
// It reports whether it has.
func writeEnd(file *os.File, line string, offset int64, end time.Duration) bool {
	at := strings.Index(line, endKey) + len(endKey)
	offset += int64(at)
	if line[at+endWidth] != ',' {
		return false // Somebody else has written it.
	}
	_, err := file.WriteAt(fmt.Appendf(nil, "%*d", endWidth, end), offset)
	if err != nil {
		_, _ = file.WriteAt([]byte(line[at:at+endWidth]), offset) // A part of it may be there.
	}
	return err == nil
}

// fields are those of a line of JSON, which are read in the order in which they are written.
type fields struct {
	rest string
	ok   bool // all were as they are written
}

func (f *fields) next(key string) string {
	value, rest, isThere := strings.Cut(f.rest, ",")
	value, isNext := strings.CutPrefix(value, key)
	f.rest, f.ok = rest, f.ok && isThere && isNext
	return value
}

func (f *fields) number(key string, least, most int64) int64 {
	n, err := strconv.ParseInt(strings.TrimLeft(f.next(key), " "), 10, 64)
	f.ok = f.ok && err == nil && least <= n && n <= most
	return n
}

func (f *fields) flag(key string) bool {
	isSet, err := strconv.ParseBool(f.next(key))
	f.ok = f.ok && err == nil
	return isSet
}

func (f *fields) text(key string) string {
	text := f.next(key)
	f.ok = f.ok && len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"'
	return strings.Trim(text, `"`)
}

func (f *fields) bootMark() bootMark {
	return bootMark{boot: f.text(`"boot":`), began: f.number(`"boot_began_ms":`, math.MinInt64, math.MaxInt64)}
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
